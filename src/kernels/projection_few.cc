// See projection_few.h. Compiled once per target.
#include "src/kernels/projection_few.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/projection_few.cc"
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

// Rows of phi at once beside M tokens: accumulators, two lanes of each row and two of x fit the
// registers, and there are enough accumulators to hide the latency of the multiply-adds.
template <int M>
constexpr int kRows = kManyRegisters ? (M == 1   ? 6
                                        : M == 8 ? 2
                                                 : 3)
                                     : (M == 4 ? 2 : 3);

// One unit of R rows, one part of the lanes; lanes a first, then b.
template <int M, int R, class T>
HWY_INLINE void AddUnit(const float* HWY_RESTRICT x, const float* const* phi, std::size_t part,
                        VecF (&acc)[M][R]) {
  const TagF df;
  VecF a[R], b[R];
  for (int r = 0; r < R; ++r) LoadUnitLanes<T>(phi[r], part, a[r], b[r]);
  for (int m = 0; m < M; ++m) {
    const float* lanes = x + m * kProjectionBlock + part * kLanes;
    const VecF xa = InRegister(hn::LoadU(df, lanes));
    const VecF xb = InRegister(hn::LoadU(df, lanes + 16));
    for (int r = 0; r < R; ++r) acc[m][r] = hn::MulAdd(xb, b[r], hn::MulAdd(xa, a[r], acc[m][r]));
  }
}

// sums[m][r] += x_m . phi_r over `count` elements. Lines `ahead` elements further are asked for.
template <int M, int R, class T>
HWY_INLINE void AddRows(const float* HWY_RESTRICT x, const float* phi, std::ptrdiff_t row_stride,
                        std::size_t count, std::ptrdiff_t ahead, float* HWY_RESTRICT sums,
                        std::ptrdiff_t token_stride) {
  const TagF df;
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF acc[M][R];
    for (int m = 0; m < M; ++m) {
      for (int r = 0; r < R; ++r) acc[m][r] = ZeroF();
    }
    const float* rows[R];
    for (int r = 0; r < R; ++r) rows[r] = phi + r * row_stride;
    std::size_t k = 0;
    for (; k + kUnit <= count; k += kUnit) {
      AddUnit<M, R, T>(x + k, rows, part, acc);
      for (int r = 0; r < R; ++r) {
        if (part == 0) {
          // Past the end of phi at last: an address that is never read.
          const auto at = reinterpret_cast<std::uintptr_t>(rows[r]) +
                          static_cast<std::uintptr_t>(ahead) * sizeof(float);
          hwy::Prefetch(reinterpret_cast<const float*>(at));
          hwy::Prefetch(reinterpret_cast<const float*>(at + 64));
        }
        rows[r] += kUnit;
      }
    }
    if (k < count) {
      HWY_ALIGN float tails[R][kUnit];
      for (int r = 0; r < R; ++r) {
        GatherUnit(rows[r], 1, count - k, tails[r]);
        rows[r] = tails[r];
      }
      AddUnit<M, R, T>(x + k, rows, part, acc);
    }
    for (int m = 0; m < M; ++m) {
      for (int r = 0; r < R; ++r) {
        float* to = sums + m * token_stride + r * 16 + part * kLanes;
        hn::StoreU(hn::Add(hn::LoadU(df, to), acc[m][r]), df, to);
      }
    }
  }
}

HWY_INLINE void AddSquares(const float* HWY_RESTRICT x, std::size_t count,
                           float* HWY_RESTRICT sums) {
  const TagF df;
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF sum = ZeroF();
    for (std::size_t k = 0; k < count; k += 16) {
      const VecF lanes = hn::LoadU(df, x + k + part * kLanes);
      sum = hn::MulAdd(lanes, lanes, sum);
    }
    float* to = sums + part * kLanes;
    hn::StoreU(hn::Add(hn::LoadU(df, to), sum), df, to);
  }
}

template <int M, class T>
void ProjectTokens(const ProjectFew& a, int begin, float* HWY_RESTRICT x) {
  const auto count = static_cast<std::size_t>(a.count);
  const std::size_t padded = (count + kUnit - 1) / kUnit * kUnit;
  const std::ptrdiff_t token_stride = (a.rows + 1) * 16;
  float* sums = a.sums + begin * token_stride;
  for (int m = 0; m < M; ++m) {
    WidenRow(static_cast<const T*>(a.x[begin + m]), count, x + m * kProjectionBlock);
    AddSquares(x + m * kProjectionBlock, padded, sums + m * token_stride + a.rows * 16);
  }
  constexpr int kGroup = kRows<M>;
  const auto ahead_of = [&](int row, int rows) {
    return row + rows < a.rows ? rows * a.row_stride : kProjectionBlock - row * a.row_stride;
  };
  int r = 0;
  for (; r + kGroup <= a.rows; r += kGroup) {
    AddRows<M, kGroup, T>(x, a.phi + r * a.row_stride, a.row_stride, count, ahead_of(r, kGroup),
                          sums + r * 16, token_stride);
  }
  for (; r < a.rows; ++r) {
    AddRows<M, 1, T>(x, a.phi + r * a.row_stride, a.row_stride, count, ahead_of(r, 1),
                     sums + r * 16, token_stride);
  }
}

template <class T>
void Project(const ProjectFew& a) {
  HWY_ALIGN float x[kProjectionTokens * kProjectionBlock];
  int m = 0;
  if (kManyRegisters && a.tokens == 8) return ProjectTokens<8, T>(a, 0, x);
  for (; m + 4 <= a.tokens; m += 4) ProjectTokens<4, T>(a, m, x);
  if (m + 2 <= a.tokens) {
    ProjectTokens<2, T>(a, m, x);
    m += 2;
  }
  if (m < a.tokens) ProjectTokens<1, T>(a, m, x);
}

}  // namespace

ProjectFewFunction ProjectFewTable(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return &Project<BFloat16>;
    case DType::kFloat16:
      return &Project<Float16>;
    default:
      return &Project<float>;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {

HWY_EXPORT(ProjectFewTable);

ProjectFewFunction GetProjectFew(DType dtype, Target target) {
  return ANABRANCH_DISPATCH(ProjectFewTable, target)(dtype);
}

}  // namespace anabranch
#endif  // HWY_ONCE
