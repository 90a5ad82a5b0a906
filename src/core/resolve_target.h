// ResolveTarget of anabranch/cpu.h (which the simd floor defines) with the reason as a literal:
// nothing is allocated.
#ifndef ANABRANCH_SRC_CORE_RESOLVE_TARGET_H_
#define ANABRANCH_SRC_CORE_RESOLVE_TARGET_H_

#include "anabranch/cpu.h"

namespace anabranch {

Status ResolveTarget(Target wanted, Target* target, const char** why);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_CORE_RESOLVE_TARGET_H_
