// See projection_grad.h. Compiled once per target.
#include "src/kernels/projection_grad.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/projection_grad.cc"
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

// --- dots of grad_h_in with the streams

// A kilobyte ahead; past the end of a row that is the next one.
template <class T>
HWY_INLINE void PrefetchAhead(const T* at) {
  hwy::Prefetch(reinterpret_cast<const std::uint8_t*>(reinterpret_cast<std::uintptr_t>(at) + 1024));
}

template <int N, class T>
HWY_INLINE void DotUnits(const T* const* rows, const T* g, std::size_t units, float* sums) {
  const TagF df;
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF acc[N];
    for (int i = 0; i < N; ++i) acc[i] = hn::LoadU(df, sums + i * 16 + part * kLanes);
    for (std::size_t u = 0; u < units; ++u) {
      VecF ga, gb;
      LoadPart(g + u * kUnit, part, ga, gb);
      for (int i = 0; i < N; ++i) {
        VecF xa, xb;
        LoadPart(rows[i] + u * kUnit, part, xa, xb);
        acc[i] = hn::MulAdd(xb, gb, hn::MulAdd(xa, ga, acc[i]));
        if (part == 0) PrefetchAhead(rows[i] + u * kUnit);
      }
    }
    for (int i = 0; i < N; ++i) hn::StoreU(acc[i], df, sums + i * 16 + part * kLanes);
  }
}

template <int N, class T>
HWY_INLINE void DotRows(const StreamDots& a, int first) {
  constexpr std::size_t kRun = 1024;  // elements, so that all parts find the rows in L1
  const auto d = static_cast<std::size_t>(a.d);
  const T* rows[N];
  for (int i = 0; i < N; ++i) rows[i] = static_cast<const T*>(a.x) + (first + i) * a.x_lane;
  const T* g = static_cast<const T*>(a.g);
  float* sums = a.sums + first * 16;
  std::size_t k = 0;
  while (k + kUnit <= d) {
    const std::size_t units = std::min(kRun, d - k) / kUnit;
    const T* at[N];
    for (int i = 0; i < N; ++i) at[i] = rows[i] + k;
    DotUnits<N>(at, g + k, units, sums);
    k += units * kUnit;
  }
  if (k == d) return;
  T tails[N + 1][kUnit];
  const T* at[N];
  for (int i = 0; i < N; ++i) {
    GatherUnit(rows[i] + k, 1, d - k, tails[i]);
    at[i] = tails[i];
  }
  GatherUnit(g + k, 1, d - k, tails[N]);
  DotUnits<N>(at, tails[N], 1, sums);
}

template <class T>
void Dots(const StreamDots& a) {
  int i = 0;
  for (; i + 4 <= a.n; i += 4) DotRows<4, T>(a, i);
  for (; i < a.n; ++i) DotRows<1, T>(a, i);
}

void FinishSums(const float* sums, int count, float* out) { SumLanes16Each(sums, count, out); }

// --- phi and its gradient

HWY_INLINE VecF Clean(VecF v) { return hn::IfThenElse(hn::IsNaN(v), hn::NaN(TagF()), v); }

template <class T>
HWY_INLINE void LoadStrided(const float* from, std::ptrdiff_t stride, std::size_t count,
                            std::size_t part, VecF& a, VecF& b) {
  HWY_ALIGN float unit[kUnit];
  if (stride != 1 || count < kUnit) {
    GatherUnit(from, stride, count, unit);
    from = unit;
  }
  LoadUnitLanes<T>(from, part, a, b);
}

template <class T>
HWY_INLINE void StoreStrided(VecF a, VecF b, std::size_t part, float* unit, float* to,
                             std::ptrdiff_t stride, std::size_t count) {
  const bool direct = stride == 1 && count == kUnit;
  StoreUnitLanes<T>(a, b, part, direct ? to : unit);
  if (direct || part + 1 < kParts) return;
  for (std::size_t k = 0; k < count; ++k) to[static_cast<std::ptrdiff_t>(k) * stride] = unit[k];
}

template <class T>
void PackUnits(const GradParameters& a) {
  const auto count = static_cast<std::size_t>(a.count);
  float* out = a.phi_units;
  for (std::size_t k = 0; k < count; k += kUnit) {
    const std::size_t here = std::min(kUnit, count - k);
    const auto offset = static_cast<std::ptrdiff_t>(k);
    for (int i = 0; i < a.n; ++i) {
      for (std::size_t part = 0; part < kParts; ++part) {
        VecF ga, gb;
        if (a.gamma != nullptr) {
          LoadStrided<T>(a.gamma + i * a.gamma_stream + offset * a.gamma_stride, a.gamma_stride,
                         here, part, ga, gb);
        }
        const float* from = a.phi + i * a.stream_stride + offset * a.stride;
        for (int f = 0; f < a.rows; ++f) {
          VecF pa, pb;
          LoadStrided<T>(from + f * a.row_stride, a.stride, here, part, pa, pb);
          if (a.gamma != nullptr) {
            pa = hn::Mul(pa, ga);
            pb = hn::Mul(pb, gb);
          }
          StorePart(Clean(pa), Clean(pb), part, out + static_cast<std::size_t>(f) * kUnit);
        }
      }
      out += static_cast<std::size_t>(a.rows) * kUnit;
    }
  }
}

// grad_phi = sum * gamma; grad_gamma = sum over rows of phi * sum, rows ascending.
template <class T>
void FinishUnits(const GradParameters& a) {
  const auto count = static_cast<std::size_t>(a.count);
  const float* sums = a.grad_units;
  HWY_ALIGN float unit[kUnit];
  for (std::size_t k = 0; k < count; k += kUnit) {
    const std::size_t here = std::min(kUnit, count - k);
    const auto offset = static_cast<std::ptrdiff_t>(k);
    for (int i = 0; i < a.n; ++i, sums += static_cast<std::size_t>(a.rows) * kUnit) {
      float* to = a.grad_phi + i * a.grad_stream_stride + offset * a.grad_stride;
      for (int f = 0; f < a.rows; ++f) {
        for (std::size_t part = 0; part < kParts; ++part) {
          VecF sa, sb;
          LoadPart(sums + static_cast<std::size_t>(f) * kUnit, part, sa, sb);
          if (a.gamma != nullptr) {
            VecF ga, gb;
            LoadStrided<T>(a.gamma + i * a.gamma_stream + offset * a.gamma_stride, a.gamma_stride,
                           here, part, ga, gb);
            sa = hn::Mul(sa, ga);
            sb = hn::Mul(sb, gb);
          }
          StoreStrided<T>(sa, sb, part, unit, to + f * a.grad_row_stride, a.grad_stride, here);
        }
      }
      if (a.grad_gamma == nullptr) continue;
      const float* from = a.phi + i * a.stream_stride + offset * a.stride;
      for (std::size_t part = 0; part < kParts; ++part) {
        VecF ta = ZeroF();
        VecF tb = ZeroF();
        for (int f = 0; f < a.rows; ++f) {
          VecF pa, pb, sa, sb;
          LoadStrided<T>(from + f * a.row_stride, a.stride, here, part, pa, pb);
          LoadPart(sums + static_cast<std::size_t>(f) * kUnit, part, sa, sb);
          ta = hn::MulAdd(pa, sa, ta);
          tb = hn::MulAdd(pb, sb, tb);
        }
        StoreStrided<T>(ta, tb, part, unit,
                        a.grad_gamma + i * a.grad_gamma_stream + offset * a.grad_gamma_stride,
                        a.grad_gamma_stride, here);
      }
    }
  }
}

// --- a tile

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

// Lines that Combine asks for meanwhile, one a step: element `offset` of rows[0 .. count-1]. All at
// once they would fill the buffers that stores and other misses need.
struct Fetch {
  template <class T>
  HWY_INLINE void Next(int step) const {
    if (step >= count) return;
    // To L2: what comes from memory holds a fill buffer of L1 for less long.
    __builtin_prefetch(static_cast<const T*>(rows[step]) + offset, 0, 2);
  }
  const void* const* rows;
  std::ptrdiff_t offset;
  int count;
};

// acc[m] = sum over s ascending of coefficients[s][m] * rows[s], one part of lanes a and b.
template <int M, class T>
HWY_INLINE void Combine(const float* HWY_RESTRICT coefficients, const float* HWY_RESTRICT rows,
                        int count, std::size_t part, const Fetch& fetch, VecF* HWY_RESTRICT a,
                        VecF* HWY_RESTRICT b) {
  const TagF df;
  for (int m = 0; m < M; ++m) a[m] = b[m] = ZeroF();
  rows += part * kLanes;
  for (int s = 0; s < count; ++s, coefficients += M, rows += kUnit) {
    fetch.Next<T>(s);
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
  for (int t = 0; t < tokens; ++t) {
    const T* from = static_cast<const T*>(rows[t]) + offset;
    for (std::size_t u = 0; u * kUnit < count; ++u) {
      WidenRow(from + u * kUnit, std::min(kUnit, count - u * kUnit),
               to + (u * kGradTile + static_cast<std::size_t>(t)) * kUnit);
    }
  }
}

// grad_x of M tokens, stream i, one unit at element k of the block.
template <int M, class T>
HWY_INLINE void GradXUnit(const GradUnits& a, int begin, int i, std::size_t k, const float* phi,
                          const float* x, const float* g, const Fetch& fetch) {
  const TagF df;
  const std::size_t count = std::min(kUnit, static_cast<std::size_t>(a.count) - k);
  const auto at = static_cast<std::ptrdiff_t>(k);
  HWY_ALIGN T parts[M][kUnit];
  const bool direct = count == kUnit && !a.stream;
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF ua[M], ub[M];
    Combine<M, T>(a.by_row + begin * a.rows, phi, a.rows, part,
                  part == 0 ? fetch : Fetch{nullptr, 0, 0}, ua, ub);
    for (int m = 0; m < M; ++m) {
      const int t = begin + m;
      const std::size_t lane = static_cast<std::size_t>(t) * kUnit + part * kLanes;
      const VecF rms = SetF(a.rms[t]);
      const VecF h_pre = SetF(a.h_pre[t * a.n + i]);
      VecF va = hn::MulAdd(rms, hn::LoadU(df, x + lane), ua[m]);
      VecF vb = hn::MulAdd(rms, hn::LoadU(df, x + lane + 16), ub[m]);
      va = hn::MulAdd(h_pre, hn::LoadU(df, g + lane), va);
      vb = hn::MulAdd(h_pre, hn::LoadU(df, g + lane + 16), vb);
      if (a.grad_x_post != nullptr) {
        const T* post = static_cast<const T*>(a.grad_x_post[t]) + i * a.post_lane + at;
        T tail[kUnit];
        if (count < kUnit) {
          GatherUnit(post, 1, count, tail);
          post = tail;
        }
        VecF pa, pb;
        LoadPart(post, part, pa, pb);
        va = hn::Add(va, pa);
        vb = hn::Add(vb, pb);
      }
      T* out = static_cast<T*>(a.grad_x[t]) + i * a.grad_x_lane + at;
      StorePartCleanNan(va, vb, part, direct ? out : parts[m]);
    }
  }
  if (direct) return;
  for (int m = 0; m < M; ++m) {
    T* out = static_cast<T*>(a.grad_x[begin + m]) + i * a.grad_x_lane + at;
    if (count == kUnit) {
      StreamUnit(parts[m], out);
    } else {
      std::copy_n(parts[m], count, out);
    }
  }
}

template <int R, class T>
HWY_INLINE void GradPhiUnit(const GradUnits& a, int begin, const float* x, float* grad_phi) {
  const TagF df;
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF sa[R], sb[R];
    Combine<R, T>(a.by_token + begin * a.tokens, x, a.tokens, part, Fetch{nullptr, 0, 0}, sa, sb);
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
  WidenTokens<T>(a.grad_h_in, 0, a.tokens, count, wide.g);
  for (int i = 0; i < a.n; ++i) {
    WidenTokens<T>(a.x, i * a.x_lane, a.tokens, count, wide.x);
    // Asked for while this stream is computed: a token's share of the next one.
    const void* const* next = i + 1 < a.n ? a.x : a.next;
    const std::ptrdiff_t next_lane = i + 1 < a.n ? (i + 1) * a.x_lane : 0;
    for (std::size_t k = 0; k < count; k += kUnit) {
      const std::size_t unit = k / kUnit * kGradTile * kUnit;
      const float* phi =
          a.phi +
          (k / kUnit * static_cast<std::size_t>(a.n) + static_cast<std::size_t>(i)) * row_floats;
      float* grad_phi = a.grad_phi + (phi - a.phi);
      ForGroups(a.tokens, [&](auto size, int begin) {
        constexpr int kSize = decltype(size)::value;
        const Fetch fetch{next + begin, next_lane + static_cast<std::ptrdiff_t>(k),
                          next == nullptr ? 0 : kSize};
        GradXUnit<kSize, T>(a, begin, i, k, phi, wide.x + unit, wide.g + unit, fetch);
      });
      ForGroups(a.rows, [&](auto size, int begin) {
        GradPhiUnit<decltype(size)::value, T>(a, begin, wide.x + unit, grad_phi);
      });
    }
  }
  if (a.stream) hwy::FlushStream();
}

template <class T>
ProjectionGradKernels Make() {
  return {&Dots<T>, &FinishSums, &PackUnits<T>, &FinishUnits<T>, &PackMix, &Units<T>, kThisTarget};
}

}  // namespace

ProjectionGradKernels ProjectionGradTable(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return Make<BFloat16>();
    case DType::kFloat16:
      return Make<Float16>();
    default:
      return Make<float>();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {

HWY_EXPORT(ProjectionGradTable);

ProjectionGradKernels GetProjectionGradKernels(DType dtype, Target target) {
  return ANABRANCH_DISPATCH(ProjectionGradTable, target)(dtype);
}

}  // namespace anabranch
#endif  // HWY_ONCE
