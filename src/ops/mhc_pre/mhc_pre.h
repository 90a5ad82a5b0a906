// Inside of mhc_pre: see include/anabranch/mhc_pre.h for the arguments and the formula.
#ifndef ANABRANCH_SRC_OPS_MHC_PRE_MHC_PRE_H_
#define ANABRANCH_SRC_OPS_MHC_PRE_MHC_PRE_H_

#include "anabranch/mhc_pre.h"
#include "src/core/spec.h"
#include "src/ops/mhc_references.h"

namespace anabranch {

// null -> dtype -> rank and shape -> attributes -> overlap.
Status Validate(const MhcPreArgs& args, Face face);
Status Validate(const MhcPreBackwardArgs& args, Face face);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_MHC_PRE_MHC_PRE_H_
