// Inside of the attention residual operators: see include/anabranch/block_attn_res.h and
// attn_res_two_phase.h for the arguments and the formulas.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_ATTN_RES_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_ATTN_RES_H_

#include "anabranch/attn_res.h"

namespace anabranch {

// null -> dtype -> rank and shape -> attributes -> overlap.
Status Validate(const BlockAttnResArgs& args);
Status Validate(const BlockAttnResBackwardArgs& args);

// The definition, in double precision, on FP64 tensors; arguments have been validated.
void BlockAttnResReference(const BlockAttnResArgs& args);
void BlockAttnResBackwardReference(const BlockAttnResBackwardArgs& args);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_ATTN_RES_H_
