// See projection.h. Compiled once per target.
#include "src/kernels/projection.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/projection.cc"
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

// Register block of the micro-kernel: tokens x rows accumulators, of which lanes are 16 elements
// of K. Rows are loaded once for all tokens, so phi streams from L2 at a third of the rate of
// the multiply-adds' other operand, which stays in L1.
constexpr int kRowGroup = 3;
constexpr int kTokenGroup = kManyRegisters ? 8 : 4;

#if HWY_COMPILER_GCC_ACTUAL
#define ANABRANCH_UNROLL4 HWY_PRAGMA(GCC unroll 4)
#else
#define ANABRANCH_UNROLL4
#endif

// Where FP32 lanes of rows at `from` go in a buffer of kScratch floats: Widen reads 64 bytes a row
// and unit and writes 128, and a load waits for an earlier store of the same address modulo 4 KiB;
// at this distance few meet one (AVX-512: 0.14 of the time of 24 rows instead of 0.21 to 0.31).
constexpr std::size_t kScratch = (kTokenGroup + 1) * kProjectionBlock;
HWY_INLINE float* ScratchFor(const void* from, float* buffer) {
  constexpr std::uintptr_t kRow = kProjectionBlock * sizeof(float);
  const auto wanted = reinterpret_cast<std::uintptr_t>(from) - 1600;
  const auto offset = (wanted - reinterpret_cast<std::uintptr_t>(buffer)) % kRow / 64 * 16;
  return buffer + offset;
}

// What Multiply asks for meanwhile, one address every 16 lanes. All lines at once would take the
// fill buffers that phi needs on its way from L2.
struct Fetch {
  HWY_INLINE void Next() {
    hwy::Prefetch(at);
    at += step;
  }
  const std::uint8_t* at;
  std::size_t step;
};

// Spreads the lines of the tokens' next blocks over `calls` calls of Multiply.
class FetchPlan {
 public:
  FetchPlan(const void* const* rows, int tokens, int calls, std::size_t bytes, std::size_t steps)
      : rows_(rows),
        rest_(rows == nullptr ? 0 : tokens),
        shares_(std::max(calls / tokens, 1)),
        burst_(std::max(tokens / calls - 1, 0)),
        bytes_(bytes),
        piece_(bytes / static_cast<std::size_t>(shares_)),
        step_(piece_ / steps) {}
  Fetch Take() {
    if (rest_ == 0) return {reinterpret_cast<const std::uint8_t*>(this), 0};
    const auto* row = static_cast<const std::uint8_t*>(*rows_);
    const Fetch fetch{row + static_cast<std::size_t>(share_) * piece_, step_};
    if (++share_ < shares_) return fetch;
    share_ = 0;
    ++rows_;
    --rest_;
    for (int m = 0; m < burst_ && rest_ > 0; ++m, ++rows_, --rest_) {
      for (std::size_t k = 0; k < bytes_; k += 64) {
        hwy::Prefetch(static_cast<const std::uint8_t*>(*rows_) + k);
      }
    }
    return fetch;
  }

 private:
  const void* const* rows_;
  int rest_;
  int shares_;  // calls a token
  int burst_;   // further tokens a call
  std::size_t bytes_, piece_, step_;
  int share_ = 0;
};

template <class T>
void Pack(const PackProjection& a) {
  const auto count = static_cast<std::size_t>(a.count);
  HWY_ALIGN float gamma[kProjectionBlock];
  for (std::size_t k = 0; a.gamma != nullptr && k < count; k += kUnit) {
    GatherUnit(a.gamma + static_cast<std::ptrdiff_t>(k) * a.gamma_stride, a.gamma_stride,
               std::min(kUnit, count - k), gamma + k);
  }
  float* out = a.out;
  for (int group = 0; group < a.rows; group += kRowGroup) {
    const int rows = std::min(kRowGroup, a.rows - group);
    for (std::size_t k = 0; k < count; k += kUnit) {
      for (int r = 0; r < rows; ++r) {
        const float* from =
            a.phi + (group + r) * a.row_stride + static_cast<std::ptrdiff_t>(k) * a.stride;
        HWY_ALIGN float unit[kUnit];
        if (a.stride != 1 || k + kUnit > count) {
          GatherUnit(from, a.stride, std::min(kUnit, count - k), unit);
          from = unit;
        }
        for (std::size_t part = 0; part < kParts; ++part) {
          VecF pa, pb, ga, gb;
          LoadUnitLanes<T>(from, part, pa, pb);
          if (a.gamma != nullptr) {
            LoadUnitLanes<T>(gamma + k, part, ga, gb);
            pa = hn::Mul(pa, ga);
            pb = hn::Mul(pb, gb);
          }
          float* to = out + r * 16 + part * kLanes;
          hn::StoreU(pa, TagF(), to);
          hn::StoreU(pb, TagF(), to + rows * 16);
        }
      }
      out += static_cast<std::size_t>(rows) * kUnit;
    }
  }
}

template <int M, class T>
HWY_INLINE void WidenUnit(const T* const* rows, std::size_t k, float* HWY_RESTRICT to,
                          VecF (&sum)[M][kParts]) {
  for (int m = 0; m < M; ++m) {
    for (std::size_t part = 0; part < kParts; ++part) {
      VecF a, b;
      LoadPart(rows[m] + k, part, a, b);
      StorePart(a, b, part, to + m * kProjectionBlock);
      sum[m][part] = hn::MulAdd(b, b, hn::MulAdd(a, a, sum[m][part]));
    }
  }
}

// M tokens to FP32 lanes at x, kProjectionBlock floats apart, and their sums of squares.
template <int M, class T>
HWY_INLINE void Widen(const void* const* from, std::size_t count, float* HWY_RESTRICT x,
                      float* HWY_RESTRICT squares, std::ptrdiff_t token_stride) {
  VecF sum[M][kParts];
  const T* rows[M];
  for (int m = 0; m < M; ++m) {
    for (std::size_t part = 0; part < kParts; ++part) sum[m][part] = ZeroF();
    rows[m] = static_cast<const T*>(from[m]);
  }
  std::size_t k = 0;
  for (; k + kUnit <= count; k += kUnit, x += kUnit) WidenUnit<M>(rows, k, x, sum);
  if (k < count) {
    T tails[M][kUnit];
    for (int m = 0; m < M; ++m) {
      GatherUnit(rows[m] + k, 1, count - k, tails[m]);
      rows[m] = tails[m];
    }
    WidenUnit<M>(rows, 0, x, sum);
  }
  for (int m = 0; m < M; ++m) {
    for (std::size_t part = 0; part < kParts; ++part) {
      float* to = squares + m * token_stride + part * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(TagF(), to), sum[m][part]), TagF(), to);
    }
  }
}

// sums[m][r] += x_m . phi_r over `units` units, one part of the lanes.
template <int M, int R>
HWY_INLINE void Multiply(const float* HWY_RESTRICT x, const float* HWY_RESTRICT phi,
                         std::size_t units, Fetch fetch, float* HWY_RESTRICT sums,
                         std::ptrdiff_t token_stride) {
  const TagF df;
  VecF acc[M][R];
  for (int m = 0; m < M; ++m) {
    for (int r = 0; r < R; ++r) acc[m][r] = ZeroF();
  }
  ANABRANCH_UNROLL4
  for (std::size_t u = 0; u < 2 * units; ++u, x += 16, phi += R * 16) {  // lanes a, then b
    fetch.Next();
    VecF row[R];
    for (int r = 0; r < R; ++r) row[r] = InRegister(hn::LoadU(df, phi + r * 16));
    for (int m = 0; m < M; ++m) {
      const VecF xm = InRegister(hn::LoadU(df, x + m * kProjectionBlock));
      for (int r = 0; r < R; ++r) acc[m][r] = hn::MulAdd(xm, row[r], acc[m][r]);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int r = 0; r < R; ++r) {
      float* to = sums + m * token_stride + r * 16;
      hn::StoreU(hn::Add(hn::LoadU(df, to), acc[m][r]), df, to);
    }
  }
}

template <int M, class T>
HWY_INLINE void ProjectTokens(const ProjectBlock& a, int begin, float* x) {
  const auto count = static_cast<std::size_t>(a.count);
  const std::size_t units = (count + kUnit - 1) / kUnit;
  const std::ptrdiff_t token_stride = (a.rows + 1) * 16;
  float* sums = a.sums + begin * token_stride;
  x = ScratchFor(a.x[begin], x);
  Widen<M, T>(a.x + begin, count, x, sums + a.rows * 16, token_stride);
  const float* phi = a.phi;
  const int groups = (a.rows + kRowGroup - 1) / kRowGroup;
  FetchPlan plan(a.next == nullptr ? nullptr : a.next + begin, M, groups * int{kParts},
                 count * sizeof(T), 2 * units);
  for (int r = 0; r < a.rows; r += kRowGroup) {
    const int rows = std::min(kRowGroup, a.rows - r);
    for (std::size_t part = 0; part < kParts; ++part) {
      const Fetch fetch = plan.Take();
      const std::size_t lane = part * kLanes;
      float* to = sums + r * 16 + lane;
      if (rows == 3) {
        Multiply<M, 3>(x + lane, phi + lane, units, fetch, to, token_stride);
      } else if (rows == 2) {
        Multiply<M, 2>(x + lane, phi + lane, units, fetch, to, token_stride);
      } else {
        Multiply<M, 1>(x + lane, phi + lane, units, fetch, to, token_stride);
      }
    }
    phi += static_cast<std::size_t>(rows) * units * kUnit;
  }
}

template <class T>
void Project(const ProjectBlock& a) {
  HWY_ALIGN float x[kScratch];
  int m = 0;
  for (; m + kTokenGroup <= a.tokens; m += kTokenGroup) ProjectTokens<kTokenGroup, T>(a, m, x);
  if (kTokenGroup > 4 && m + 4 <= a.tokens) {
    ProjectTokens<4, T>(a, m, x);
    m += 4;
  }
  if (m + 2 <= a.tokens) {
    ProjectTokens<2, T>(a, m, x);
    m += 2;
  }
  if (m < a.tokens) ProjectTokens<1, T>(a, m, x);
}

void FinishSums(const float* sums, int count, float* out) { SumLanes16Each(sums, count, out); }

// x has been in L2 and may have left it since. Past the end of a row: what is read next, or
// nothing.
template <class T>
HWY_INLINE void PrefetchAhead(const T* at) {
  hwy::Prefetch(reinterpret_cast<const std::uint8_t*>(reinterpret_cast<std::uintptr_t>(at) + 1024));
}

template <class T>
HWY_INLINE void WeightedUnit(const T* const* rows, const float* weights, int n, T* out) {
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF xa, xb;
    LoadPart(rows[0], part, xa, xb);
    VecF w = SetF(weights[0]);
    VecF a = hn::Mul(w, xa);
    VecF b = hn::Mul(w, xb);
    for (int i = 1; i < n; ++i) {
      LoadPart(rows[i], part, xa, xb);
      w = SetF(weights[i]);
      a = hn::MulAdd(w, xa, a);
      b = hn::MulAdd(w, xb, b);
    }
    StorePartCleanNan(a, b, part, out);
  }
}

template <int N, class T>
void SumRows(const WeightedSum& a) {
  constexpr int kMax = N > 0 ? N : 16;
  const int n = N > 0 ? N : a.n;
  const T* rows[kMax] = {};
  for (int i = 0; i < n; ++i) rows[i] = static_cast<const T*>(a.x) + i * a.x_lane;
  T* out = static_cast<T*>(a.out);
  const auto d = static_cast<std::size_t>(a.d);
  std::size_t k = 0;
  for (; k + kUnit <= d; k += kUnit) {
    if (a.stream) {
      HWY_ALIGN T unit[kUnit];
      WeightedUnit(rows, a.weights, n, unit);
      StreamUnit(unit, out + k);
    } else {
      WeightedUnit(rows, a.weights, n, out + k);
    }
    for (int i = 0; i < n; ++i) {
      PrefetchAhead(rows[i]);
      rows[i] += kUnit;
    }
  }
  if (a.stream) hwy::FlushStream();
  if (k == d) return;
  T tails[kMax][kUnit];
  T result[kUnit];
  for (int i = 0; i < n; ++i) {
    GatherUnit(rows[i], 1, d - k, tails[i]);
    rows[i] = tails[i];
  }
  WeightedUnit(rows, a.weights, n, result);
  std::copy_n(result, d - k, out + k);
}

template <class T>
void AnySum(const WeightedSum& a) {
  if (a.n == 4) return SumRows<4, T>(a);
  SumRows<0, T>(a);
}

template <class T>
ProjectionKernels Make() {
  return {&Pack<T>, &Project<T>, &FinishSums, &AnySum<T>, kThisTarget};
}

}  // namespace

ProjectionKernels ProjectionTable(DType dtype) {
  return ForActivation(dtype, [](auto type) { return Make<decltype(type)>(); });
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {

HWY_EXPORT(ProjectionTable);

ProjectionKernels GetProjectionKernels(DType dtype, Target target) {
  return ANABRANCH_DISPATCH(ProjectionTable, target)(dtype);
}

}  // namespace anabranch
#endif  // HWY_ONCE
