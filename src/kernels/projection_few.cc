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

// Rows row .. end - 1 in groups of R; returns the first row of those that are left.
template <int M, int R, class T>
HWY_INLINE int AddGroups(const ProjectFew& a, const float* HWY_RESTRICT x, int row,
                         float* HWY_RESTRICT sums) {
  for (; row + R <= a.end; row += R) {
    const std::ptrdiff_t ahead =
        row + R < a.end ? R * a.row_stride : kProjectionBlock - (row - a.begin) * a.row_stride;
    AddRows<M, R, T>(x, a.phi + row * a.row_stride, a.row_stride, static_cast<std::size_t>(a.count),
                     ahead, sums + row * 16, (a.rows + 1) * 16);
  }
  return row;
}

template <int M, class T>
void ProjectTokens(const ProjectFew& a, int token, float* HWY_RESTRICT x) {
  const auto count = static_cast<std::size_t>(a.count);
  const std::size_t padded = (count + kUnit - 1) / kUnit * kUnit;
  const std::ptrdiff_t token_stride = (a.rows + 1) * 16;
  float* sums = a.sums + token * token_stride;
  for (int m = 0; m < M; ++m) {
    float* lanes = x + m * kProjectionBlock;
    WidenRow(static_cast<const T*>(a.x[token + m]), count, lanes);
    if (a.squares) AddSquares(lanes, padded, sums + m * token_stride + a.rows * 16);
  }
  int row = AddGroups<M, kRows<M>, T>(a, x, a.begin, sums);
  if constexpr (kRows < M >> 3) row = AddGroups<M, 3, T>(a, x, row, sums);
  AddGroups<M, 1, T>(a, x, row, sums);
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
  return ForActivation(dtype, [](auto type) { return &Project<decltype(type)>; });
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
