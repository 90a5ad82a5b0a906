// What the kernels of attention residuals share.
//
// Per-target header: include after vec16-inl.h inside a foreach_target file.
#if defined(ANABRANCH_SRC_KERNELS_ATTN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANABRANCH_SRC_KERNELS_ATTN_INL_H_
#undef ANABRANCH_SRC_KERNELS_ATTN_INL_H_
#else
#define ANABRANCH_SRC_KERNELS_ATTN_INL_H_
#endif

#include <type_traits>

#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {

// Calls f(R, first) for groups of R <= kMost <= 4 rows of nearly the same size: one row alone would
// pay for loading what rows share.
template <int kMost, class F>
HWY_INLINE void ForRowGroups(int count, const F& f) {
  const int groups = (count + kMost - 1) / kMost;
  for (int g = 0, first = 0; g < groups; ++g) {
    const int rows = (count - first + groups - g - 1) / (groups - g);
    if constexpr (kMost >= 4) {
      if (rows == 4) f(std::integral_constant<int, 4>(), first);
    }
    if constexpr (kMost >= 3) {
      if (rows == 3) f(std::integral_constant<int, 3>(), first);
    }
    if (rows == 2) f(std::integral_constant<int, 2>(), first);
    if (rows == 1) f(std::integral_constant<int, 1>(), first);
    first += rows;
  }
}

// The sum of both groups of a unit, 16 lanes each.
HWY_INLINE float SumGroups(const float* HWY_RESTRICT lanes) {
  float sums[16];
  for (int i = 0; i < 16; ++i) sums[i] = lanes[i] + lanes[16 + i];
  return SumLanes16(sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
