// Inside of mhc_head: see include/anabranch/mhc_head.h for the arguments and the formula.
#ifndef ANABRANCH_SRC_OPS_MHC_HEAD_MHC_HEAD_H_
#define ANABRANCH_SRC_OPS_MHC_HEAD_MHC_HEAD_H_

#include "anabranch/mhc_head.h"
#include "src/core/spec.h"

namespace anabranch {

// null -> dtype -> rank and shape -> attributes -> overlap.
Status Validate(const MhcHeadArgs& args, Face face);
Status Validate(const MhcHeadBackwardArgs& args, Face face);

// The definition, in double precision, on FP64 tensors; arguments have been validated.
void MhcHeadReference(const MhcHeadArgs& args);
void MhcHeadBackwardReference(const MhcHeadBackwardArgs& args);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_MHC_HEAD_MHC_HEAD_H_
