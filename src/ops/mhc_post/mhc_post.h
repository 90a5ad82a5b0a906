// Inside of mhc_post: see include/anabranch/mhc_post.h for the arguments and the formula.
#ifndef ANABRANCH_SRC_OPS_MHC_POST_MHC_POST_H_
#define ANABRANCH_SRC_OPS_MHC_POST_MHC_POST_H_

#include "anabranch/mhc_post.h"
#include "src/core/spec.h"

namespace anabranch {

// null -> dtype -> rank and shape -> attributes -> overlap.
Status Validate(const MhcPostArgs& args, Face face);
Status Validate(const MhcPostBackwardArgs& args, Face face);

// The definition, in double precision, on FP64 tensors; arguments have been validated.
void MhcPostReference(const MhcPostArgs& args);
void MhcPostBackwardReference(const MhcPostBackwardArgs& args);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_MHC_POST_MHC_POST_H_
