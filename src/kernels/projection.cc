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
      for (int r = group; r < group + rows; ++r, out += kUnit) {
        const float* from = a.phi + r * a.row_stride + static_cast<std::ptrdiff_t>(k) * a.stride;
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
          StorePart(pa, pb, part, out);
        }
      }
    }
  }
}

// M tokens of FP32 lanes at x, kProjectionBlock floats apart, and their sums of squares.
template <int M, class T>
HWY_INLINE void Widen(const void* const* from, std::size_t count, float* HWY_RESTRICT x,
                      float* HWY_RESTRICT squares, std::ptrdiff_t token_stride) {
  VecF sum[M][kParts];
  for (int m = 0; m < M; ++m) {
    for (std::size_t part = 0; part < kParts; ++part) sum[m][part] = ZeroF();
  }
  for (std::size_t k = 0; k < count; k += kUnit) {
    for (int m = 0; m < M; ++m) {
      const T* unit = static_cast<const T*>(from[m]) + k;
      T tail[kUnit];
      if (k + kUnit > count) {
        GatherUnit(unit, 1, count - k, tail);
        unit = tail;
      }
      for (std::size_t part = 0; part < kParts; ++part) {
        VecF a, b;
        LoadPart(unit, part, a, b);
        StorePart(a, b, part, x + m * kProjectionBlock + k);
        sum[m][part] = hn::MulAdd(b, b, hn::MulAdd(a, a, sum[m][part]));
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (std::size_t part = 0; part < kParts; ++part) {
      float* to = squares + m * token_stride + part * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(TagF(), to), sum[m][part]), TagF(), to);
    }
  }
}

// sums[m][r] += x_m . phi_r over `units` units.
template <int M, int R>
HWY_INLINE void Multiply(const float* HWY_RESTRICT x, const float* HWY_RESTRICT phi,
                         std::size_t units, float* HWY_RESTRICT sums, std::ptrdiff_t token_stride) {
  const TagF df;
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF acc[M][R];
    for (int m = 0; m < M; ++m) {
      for (int r = 0; r < R; ++r) acc[m][r] = ZeroF();
    }
    const float* p = phi + part * kLanes;
    const float* v = x + part * kLanes;
    for (std::size_t u = 0; u < 2 * units; ++u, v += 16) {  // lanes a, then b
      VecF row[R];
      for (int r = 0; r < R; ++r) row[r] = hn::LoadU(df, p + r * kUnit);
      for (int m = 0; m < M; ++m) {
        const VecF xm = hn::LoadU(df, v + m * kProjectionBlock);
        for (int r = 0; r < R; ++r) acc[m][r] = hn::MulAdd(xm, row[r], acc[m][r]);
      }
      p += u % 2 == 0 ? 16 : R * kUnit - 16;
    }
    for (int m = 0; m < M; ++m) {
      for (int r = 0; r < R; ++r) {
        float* to = sums + m * token_stride + r * 16 + part * kLanes;
        hn::StoreU(hn::Add(hn::LoadU(df, to), acc[m][r]), df, to);
      }
    }
  }
}

template <int M, class T>
HWY_INLINE void ProjectTokens(const ProjectBlock& a, int begin, float* HWY_RESTRICT x) {
  const auto count = static_cast<std::size_t>(a.count);
  const std::size_t units = (count + kUnit - 1) / kUnit;
  const std::ptrdiff_t token_stride = (a.rows + 1) * 16;
  float* sums = a.sums + begin * token_stride;
  Widen<M, T>(a.x + begin, count, x, sums + a.rows * 16, token_stride);
  const float* phi = a.phi;
  // The next block's lines are asked for a few at a time, so that the fill buffers never see a
  // burst.
  const std::size_t bytes = a.next == nullptr ? 0 : count * sizeof(T);
  const auto groups = static_cast<std::size_t>((a.rows + kRowGroup - 1) / kRowGroup);
  const std::size_t share = (bytes / groups / 64 + 1) * 64;
  std::size_t fetched = 0;
  for (int r = 0; r < a.rows; r += kRowGroup) {
    for (std::size_t end = std::min(bytes, fetched + share); fetched < end; fetched += 64) {
      for (int m = 0; m < M; ++m) {
        hwy::Prefetch(static_cast<const std::uint8_t*>(a.next[begin + m]) + fetched);
      }
    }
    const int rows = std::min(kRowGroup, a.rows - r);
    if (rows == 3) {
      Multiply<M, 3>(x, phi, units, sums + r * 16, token_stride);
    } else if (rows == 2) {
      Multiply<M, 2>(x, phi, units, sums + r * 16, token_stride);
    } else {
      Multiply<M, 1>(x, phi, units, sums + r * 16, token_stride);
    }
    phi += static_cast<std::size_t>(rows) * units * kUnit;
  }
}

template <class T>
void Project(const ProjectBlock& a) {
  HWY_ALIGN float x[kTokenGroup * kProjectionBlock];
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
    WeightedUnit(rows, a.weights, n, out + k);
    for (int i = 0; i < n; ++i) rows[i] += kUnit;
  }
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

HWY_EXPORT(ProjectionTable);

ProjectionKernels GetProjectionKernels(DType dtype, Target target) {
  return ANABRANCH_DISPATCH(ProjectionTable, target)(dtype);
}

}  // namespace anabranch
#endif  // HWY_ONCE
