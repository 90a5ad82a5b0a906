// Inside of mhc_post_pre: see include/anabranch/mhc_post_pre.h.
#ifndef ANABRANCH_SRC_OPS_MHC_POST_PRE_MHC_POST_PRE_H_
#define ANABRANCH_SRC_OPS_MHC_POST_PRE_MHC_POST_PRE_H_

#include "anabranch/mhc_post_pre.h"

namespace anabranch {

// null -> dtype -> rank and shape -> attributes -> overlap.
Status Validate(const MhcPostPreArgs& args);

// The definition, in double precision, on FP64 tensors; arguments have been validated.
void MhcPostPreReference(const MhcPostPreArgs& args);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_MHC_POST_PRE_MHC_POST_PRE_H_
