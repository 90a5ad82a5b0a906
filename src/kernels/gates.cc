// See gates.h. Compiled once per target.
#include "src/kernels/gates.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/gates.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "src/simd/dispatch.h"
#include "src/simd/exp-inl.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE VecF Sigmoid1(VecF z) {
  // Highway's Exp needs arguments of at most 104. At -z = 100, exp is infinite in FP32 and the
  // sigmoid 0, as it is beyond. Min and Max may lose a NaN.
  const VecF minus = hn::Min(hn::Max(hn::Neg(z), SetF(-104.0f)), SetF(100.0f));
  const VecF one = SetF(1.0f);
  const VecF s = hn::Div(one, hn::Add(one, ExpF(minus)));
  return hn::IfThenElse(hn::IsNaN(z), z, s);
}

}  // namespace

void SigmoidInPlace(float* values, std::int64_t count) {
  const TagF df;
  const auto lanes = static_cast<std::int64_t>(kLanes);
  std::int64_t k = 0;
  for (; k + lanes <= count; k += lanes) {
    hn::StoreU(Sigmoid1(hn::LoadU(df, values + k)), df, values + k);
  }
  if (k == count) return;
  HWY_ALIGN float rest[kLanes] = {};
  std::copy(values + k, values + count, rest);
  hn::Store(Sigmoid1(hn::Load(df, rest)), df, rest);
  std::copy_n(rest, count - k, values + k);
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {

HWY_EXPORT(SigmoidInPlace);

SigmoidFunction GetSigmoid(Target target) { return ANABRANCH_DISPATCH(SigmoidInPlace, target); }

}  // namespace anabranch
#endif  // HWY_ONCE
