// src/simd alone, on every target of this machine: roundings, widening, the 16-lane layout, the sum
// of lanes and the exponential against definitions that share no code with them.
#include "tests/simd/simd_test.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/simd/simd_test.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "src/simd/dispatch.h"
#include "src/simd/exp-inl.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {
namespace {

// One unit of 32 elements through the registers.
template <class T>
void Round(const float* a, const float* b, bool clean_nan, void* unit) {
  for (std::size_t part = 0; part < kParts; ++part) {
    const VecF va = hn::LoadU(TagF(), a + part * kLanes);
    const VecF vb = hn::LoadU(TagF(), b + part * kLanes);
    if (clean_nan) {
      StorePartCleanNan(va, vb, part, static_cast<T*>(unit));
    } else {
      StorePart(va, vb, part, static_cast<T*>(unit));
    }
  }
}

template <class T>
void Widen(const void* unit, float* a, float* b) {
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF va;
    VecF vb;
    LoadPart(static_cast<const T*>(unit), part, va, vb);
    hn::StoreU(va, TagF(), a + part * kLanes);
    hn::StoreU(vb, TagF(), b + part * kLanes);
  }
}

}  // namespace

int ThisTarget() { return static_cast<int>(kThisTarget); }

void RoundBFloat16(const float* a, const float* b, bool clean_nan, void* unit) {
  Round<BFloat16>(a, b, clean_nan, unit);
}
void RoundFloat16(const float* a, const float* b, bool clean_nan, void* unit) {
  Round<Float16>(a, b, clean_nan, unit);
}
void WidenBFloat16(const void* unit, float* a, float* b) { Widen<BFloat16>(unit, a, b); }
void WidenFloat16(const void* unit, float* a, float* b) { Widen<Float16>(unit, a, b); }
void WidenFloat32(const void* unit, float* a, float* b) { Widen<float>(unit, a, b); }

// `count` is a multiple of 16.
void ExpInPlace(float* values, std::size_t count) {
  for (std::size_t k = 0; k < count; k += kLanes) {
    hn::StoreU(ExpF(hn::LoadU(TagF(), values + k)), TagF(), values + k);
  }
}

float SumOfLanes(const float* lanes) { return SumLanes16(lanes); }

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch::simd_test {

HWY_EXPORT(ThisTarget);
HWY_EXPORT(RoundBFloat16);
HWY_EXPORT(RoundFloat16);
HWY_EXPORT(WidenBFloat16);
HWY_EXPORT(WidenFloat16);
HWY_EXPORT(WidenFloat32);
HWY_EXPORT(ExpInPlace);
HWY_EXPORT(SumOfLanes);

Functions Of(Target target) {
  return {ANABRANCH_DISPATCH(ThisTarget, target),   ANABRANCH_DISPATCH(RoundBFloat16, target),
          ANABRANCH_DISPATCH(RoundFloat16, target), ANABRANCH_DISPATCH(WidenBFloat16, target),
          ANABRANCH_DISPATCH(WidenFloat16, target), ANABRANCH_DISPATCH(WidenFloat32, target),
          ANABRANCH_DISPATCH(ExpInPlace, target),   ANABRANCH_DISPATCH(SumOfLanes, target)};
}

}  // namespace anabranch::simd_test
#endif  // HWY_ONCE
