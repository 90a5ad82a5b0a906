// Picks the version of a kernel that was compiled for a target. Highway's own chosen-target state
// is process-wide and would be shared with other users of libhwy, so it is never touched.
//
// In a kernel file, once (inside #if HWY_ONCE): HWY_EXPORT(Function); then
// ANABRANCH_DISPATCH(Function, target) is a pointer to it.
#ifndef ANABRANCH_SRC_SIMD_DISPATCH_H_
#define ANABRANCH_SRC_SIMD_DISPATCH_H_

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "anabranch/cpu.h"
#include "anabranch/dtype.h"

namespace anabranch {

// The HWY_* bit of a resolved target.
inline constexpr std::int64_t HwyBit(Target target) {
  switch (target) {
#if HWY_ARCH_X86
    case Target::kAvx512:
      return HWY_AVX3;
    case Target::kAvx2:
      return HWY_AVX2;
    case Target::kSse4:
      return HWY_SSE4;
#endif
#if HWY_ARCH_ARM
    case Target::kNeon:
      return HWY_NEON;
#endif
    default:
      return HWY_EMU128;
  }
}

// Row of a HWY_EXPORT table. Must be evaluated where HWY_TARGETS is the kernel file's.
inline std::size_t DispatchIndex(Target target) {
  hwy::ChosenTarget chosen;
  chosen.Update(HwyBit(target));
  return chosen.GetIndex();
}

#define ANABRANCH_DISPATCH(FUNCTION, TARGET) \
  (HWY_DISPATCH_TABLE(FUNCTION)[::anabranch::DispatchIndex(TARGET)])

// make(T()) for the element type of activations (not float64).
template <class Make>
auto ForActivation(DType dtype, const Make& make) {
  switch (dtype) {
    case DType::kBFloat16:
      return make(BFloat16());
    case DType::kFloat16:
      return make(Float16());
    default:
      return make(float());
  }
}

}  // namespace anabranch

#endif  // ANABRANCH_SRC_SIMD_DISPATCH_H_
