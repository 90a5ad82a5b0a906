// The one exponential, and what is built on it. Per-target header: include after vec16-inl.h.
#if defined(ANABRANCH_SRC_SIMD_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANABRANCH_SRC_SIMD_EXP_INL_H_
#undef ANABRANCH_SRC_SIMD_EXP_INL_H_
#else
#define ANABRANCH_SRC_SIMD_EXP_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>

#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {

// e^x, the same bits on all targets with FMA. Highway's Exp turns NaN into 0; this one keeps it.
HWY_INLINE VecF ExpF(VecF x) { return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(TagF(), x)); }

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
