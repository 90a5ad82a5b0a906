// Units of projection_grad.h: grad_x and grad_phi of a tile. Compiled once per target.
#include <algorithm>

#include "src/kernels/projection_grad.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/projection_units.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "src/simd/dispatch.h"
#include "src/simd/units-inl.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {
namespace {

constexpr std::size_t kBlockUnits = kGradBlock / kUnit;

#if HWY_COMPILER_GCC_ACTUAL
#define ANABRANCH_UNROLL12 HWY_PRAGMA(GCC unroll 12)
#else
#define ANABRANCH_UNROLL12
#endif

void PackMix(const GradMix& a) {
  ForGroups(a.tokens, [&](auto size, int begin) {
    float* out = a.by_row + begin * a.rows;
    for (int f = 0; f < a.rows; ++f) {
      for (int m = 0; m < size; ++m) *out++ = a.d_mix[(begin + m) * a.rows + f];
    }
  });
  ForGroups(a.rows, [&](auto size, int begin) {
    float* out = a.by_token + begin * a.tokens;
    for (int t = 0; t < a.tokens; ++t) {
      for (int r = 0; r < size; ++r) *out++ = a.d_mix[t * a.rows + begin + r];
    }
  });
}

// What goes between caches and memory during a unit: a line of every row that will be read next,
// and the grad_x of the unit before, which is written past the caches. Spread evenly over all
// steps: in bursts they would take the fill buffers that loads from L2 need.
template <class T>
class Traffic {
 public:
  void Fetch(const void* const* rows, std::ptrdiff_t offset, int count) {
    rows_ = rows;
    row_offset_ = offset;
    rows_left_ = rows == nullptr ? 0 : count;
  }
  void Write(const T* units, void* const* to, std::ptrdiff_t offset, int count) {
    units_ = units;
    to_ = to;
    to_offset_ = offset;
    units_left_ = count;
  }
  // `steps`: how many there will be.
  void Spread(int count, int steps) {
    mask_ = 0;
    while ((mask_ + 1) * 2 * count <= steps) mask_ = 2 * mask_ + 1;
  }
  HWY_INLINE void Next(int step) {
    if ((step & mask_) != 0) return;
    if (rows_left_ > 0) {
      // To L2: what comes from memory holds a fill buffer of L1 for less long.
      __builtin_prefetch(static_cast<const T*>(*rows_++) + row_offset_, 0, 2);
      --rows_left_;
    }
    if (units_left_ > 0) WriteOne();
  }
  void Finish() {
    while (units_left_ > 0) WriteOne();
  }

 private:
  HWY_INLINE void WriteOne() {
    StreamUnit(units_, static_cast<T*>(*to_++) + to_offset_);
    units_ += kUnit;
    --units_left_;
  }

  const void* const* rows_ = nullptr;
  std::ptrdiff_t row_offset_ = 0;
  const T* units_ = nullptr;
  void* const* to_ = nullptr;
  std::ptrdiff_t to_offset_ = 0;
  int rows_left_ = 0;
  int units_left_ = 0;
  int mask_ = 0;
};

// acc[m] = sum over s ascending of coefficients[s][m] * rows[s], one part of lanes a and b.
template <int M, class T>
HWY_INLINE void Combine(const float* HWY_RESTRICT coefficients, const float* HWY_RESTRICT rows,
                        int count, std::size_t part, Traffic<T>& traffic, VecF* HWY_RESTRICT a,
                        VecF* HWY_RESTRICT b) {
  const TagF df;
  for (int m = 0; m < M; ++m) a[m] = b[m] = ZeroF();
  rows += part * kLanes;
  for (int s = 0; s < count; ++s, coefficients += M, rows += kUnit) {
    traffic.Next(s);
    const VecF ra = InRegister(hn::LoadU(df, rows));
    const VecF rb = InRegister(hn::LoadU(df, rows + 16));
    for (int m = 0; m < M; ++m) {
      const VecF c = InRegister(SetF(coefficients[m]));
      a[m] = hn::MulAdd(c, ra, a[m]);
      b[m] = hn::MulAdd(c, rb, b[m]);
    }
  }
}

// FP32 lanes of a block of D: [unit][token][32].
struct WideBlocks {
  HWY_ALIGN float x[kBlockUnits * kGradTile * kUnit];
  HWY_ALIGN float g[kBlockUnits * kGradTile * kUnit];
};

template <class T>
HWY_INLINE void WidenTokens(const void* const* rows, std::ptrdiff_t offset, int tokens,
                            std::size_t count, float* to) {
  for (int t = 0; t < tokens; ++t, to += kUnit) {
    const T* from = static_cast<const T*>(rows[t]) + offset;
    if (count == kGradBlock) {
      for (std::size_t u = 0; u < kBlockUnits; ++u) {
        for (std::size_t part = 0; part < kParts; ++part) {
          VecF a, b;
          LoadPart(from + u * kUnit, part, a, b);
          StorePart(a, b, part, to + u * kGradTile * kUnit);
        }
      }
      continue;
    }
    for (std::size_t u = 0; u * kUnit < count; ++u) {
      WidenRow(from + u * kUnit, std::min(kUnit, count - u * kUnit), to + u * kGradTile * kUnit);
    }
  }
}

// What grad_x of a token adds to the combined rows of phi, and its rounding: one part of a unit at
// `out`. `post` may be null.
template <class T>
HWY_INLINE void FinishGradX(VecF ua, VecF ub, const float* x, float rms, const float* g,
                            float h_pre, const T* post, std::size_t part, T* out) {
  const TagF df;
  const VecF r = SetF(rms);
  const VecF h = SetF(h_pre);
  VecF va = hn::MulAdd(r, hn::LoadU(df, x), ua);
  VecF vb = hn::MulAdd(r, hn::LoadU(df, x + 16), ub);
  va = hn::MulAdd(h, hn::LoadU(df, g), va);
  vb = hn::MulAdd(h, hn::LoadU(df, g + 16), vb);
  if (post != nullptr) {
    VecF pa, pb;
    LoadPart(post, part, pa, pb);
    va = hn::Add(va, pa);
    vb = hn::Add(vb, pb);
  }
  StorePartCleanNan(va, vb, part, out);
}

// grad_x of M tokens, stream i, one whole unit at element k of the block. Unrolled over the tokens:
// their sums stay in registers.
template <int M, bool kPost, class T>
HWY_INLINE void GradXWhole(const GradUnits& a, int begin, int i, std::size_t k, const float* phi,
                           const float* x, const float* g, T* lines, Traffic<T>& traffic) {
  const auto at = static_cast<std::ptrdiff_t>(k);
  const std::ptrdiff_t out_at = i * a.grad_x_lane + at;
  const std::ptrdiff_t post_at = i * a.post_lane + at;
  void* const* HWY_RESTRICT outs = a.grad_x + begin;
  const void* const* HWY_RESTRICT posts = kPost ? a.grad_x_post + begin : nullptr;
  const float* HWY_RESTRICT rms = a.rms + begin;
  const float* HWY_RESTRICT h_pre = a.h_pre + begin * a.n + i;
  const std::ptrdiff_t n = a.n;
  const bool stream = a.stream;
  lines += static_cast<std::size_t>(begin) * kUnit;
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF ua[M], ub[M];
    Combine<M, T>(a.by_row + begin * a.rows, phi, a.rows, part, traffic, ua, ub);
    const std::size_t lane = static_cast<std::size_t>(begin) * kUnit + part * kLanes;
    ANABRANCH_UNROLL12
    for (int m = 0; m < M; ++m) {
      const std::size_t row = lane + static_cast<std::size_t>(m) * kUnit;
      const T* post = kPost ? static_cast<const T*>(posts[m]) + post_at : nullptr;
      T* out = stream ? lines + m * kUnit : static_cast<T*>(outs[m]) + out_at;
      FinishGradX<T>(ua[m], ub[m], x + row, rms[m], g + row, h_pre[m * n], post, part, out);
    }
  }
}

// The same for the last, partial unit of a row.
template <int M, class T>
HWY_NOINLINE void GradXTail(const GradUnits& a, int begin, int i, std::size_t k, const float* phi,
                            const float* x, const float* g) {
  const std::size_t count = static_cast<std::size_t>(a.count) - k;
  const auto at = static_cast<std::ptrdiff_t>(k);
  HWY_ALIGN T parts[M][kUnit];
  HWY_ALIGN T posts[M][kUnit];
  Traffic<T> none;
  for (int m = 0; a.grad_x_post != nullptr && m < M; ++m) {
    const T* post = static_cast<const T*>(a.grad_x_post[begin + m]) + i * a.post_lane + at;
    GatherUnit(post, 1, count, posts[m]);
  }
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF ua[M], ub[M];
    Combine<M, T>(a.by_row + begin * a.rows, phi, a.rows, part, none, ua, ub);
    for (int m = 0; m < M; ++m) {
      const int t = begin + m;
      const std::size_t lane = static_cast<std::size_t>(t) * kUnit + part * kLanes;
      FinishGradX<T>(ua[m], ub[m], x + lane, a.rms[t], g + lane, a.h_pre[t * a.n + i],
                     a.grad_x_post != nullptr ? posts[m] : nullptr, part, parts[m]);
    }
  }
  for (int m = 0; m < M; ++m) {
    T* out = static_cast<T*>(a.grad_x[begin + m]) + i * a.grad_x_lane + at;
    std::copy_n(parts[m], count, out);
  }
}

template <int M, class T>
HWY_INLINE void GradXUnit(const GradUnits& a, int begin, int i, std::size_t k, const float* phi,
                          const float* x, const float* g, T* lines, Traffic<T>& traffic) {
  if (k + kUnit > static_cast<std::size_t>(a.count)) {
    GradXTail<M, T>(a, begin, i, k, phi, x, g);
  } else if (a.grad_x_post != nullptr) {
    GradXWhole<M, true, T>(a, begin, i, k, phi, x, g, lines, traffic);
  } else {
    GradXWhole<M, false, T>(a, begin, i, k, phi, x, g, lines, traffic);
  }
}

template <int R, class T>
HWY_INLINE void GradPhiUnit(const GradUnits& a, int begin, const float* x, float* grad_phi,
                            Traffic<T>& traffic) {
  const TagF df;
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF sa[R], sb[R];
    Combine<R, T>(a.by_token + begin * a.tokens, x, a.tokens, part, traffic, sa, sb);
    for (int r = 0; r < R; ++r) {
      float* to = grad_phi + static_cast<std::size_t>(begin + r) * kUnit + part * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(df, to), sa[r]), df, to);
      hn::StoreU(hn::Add(hn::LoadU(df, to + 16), sb[r]), df, to + 16);
    }
  }
}

template <class T>
void Units(const GradUnits& a) {
  WideBlocks wide;
  const auto count = static_cast<std::size_t>(a.count);
  const std::size_t row_floats = static_cast<std::size_t>(a.rows) * kUnit;
  HWY_ALIGN T lines[2][kGradTile * kUnit];  // grad_x of a unit, and of the one before
  Traffic<T> traffic;
  constexpr int kGroup = kManyRegisters ? 12 : 6;
  traffic.Spread(a.tokens, int{kParts} * 2 * a.tokens * a.rows / kGroup);
  int flip = 0;
  WidenTokens<T>(a.grad_h_in, 0, a.tokens, count, wide.g);
  for (int i = 0; i < a.n; ++i) {
    WidenTokens<T>(a.x, i * a.x_lane, a.tokens, count, wide.x);
    // Asked for while this stream is computed: a token's share of the next one.
    const void* const* next = i + 1 < a.n ? a.x : a.next;
    const std::ptrdiff_t next_lane = i + 1 < a.n ? (i + 1) * a.x_lane : 0;
    for (std::size_t k = 0; k < count; k += kUnit, flip ^= 1) {
      const auto at = static_cast<std::ptrdiff_t>(k);
      const std::size_t unit = k / kUnit * kGradTile * kUnit;
      const float* phi =
          a.phi +
          (k / kUnit * static_cast<std::size_t>(a.n) + static_cast<std::size_t>(i)) * row_floats;
      float* grad_phi = a.grad_phi + (phi - a.phi);
      traffic.Fetch(next, next_lane + at, a.tokens);
      ForGroups(a.tokens, [&](auto size, int begin) {
        GradXUnit<decltype(size)::value, T>(a, begin, i, k, phi, wide.x + unit, wide.g + unit,
                                            lines[flip], traffic);
      });
      ForGroups(a.rows, [&](auto size, int begin) {
        GradPhiUnit<decltype(size)::value, T>(a, begin, wide.x + unit, grad_phi, traffic);
      });
      traffic.Finish();
      if (a.stream && k + kUnit <= count) {
        traffic.Write(lines[flip], a.grad_x, i * a.grad_x_lane + at, a.tokens);
      }
    }
  }
  traffic.Finish();
  if (a.stream) hwy::FlushStream();
}

template <class T>
GradUnitsKernels Make() {
  return {&PackMix, &Units<T>};
}

}  // namespace

GradUnitsKernels GradUnitsTable(DType dtype) {
  return ForActivation(dtype, [](auto type) { return Make<decltype(type)>(); });
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {

HWY_EXPORT(GradUnitsTable);

GradUnitsKernels GetGradUnitsKernels(DType dtype, Target target) {
  return ANABRANCH_DISPATCH(GradUnitsTable, target)(dtype);
}

}  // namespace anabranch
#endif  // HWY_ONCE
