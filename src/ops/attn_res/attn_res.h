// Inside of the attention residual operators: see include/anabranch/block_attn_res.h and
// attn_res_two_phase.h for the arguments and the formulas.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_ATTN_RES_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_ATTN_RES_H_

#include <cstddef>

#include "anabranch/attn_res.h"
#include "src/core/spec.h"

namespace anabranch {

// null -> dtype -> rank and shape -> attributes -> overlap.
Status Validate(const BlockAttnResArgs& args, Face face);
Status Validate(const BlockAttnResBackwardArgs& args, Face face);
Status Validate(const AttnResPrepareArgs& args, Face face);
Status Validate(const AttnResPrepareBackwardArgs& args, Face face);
Status Validate(const AttnResMergeArgs& args, Face face);
Status Validate(const AttnResMergeBackwardArgs& args, Face face);

// The definition, in double precision, on FP64 tensors; arguments have been validated.
void BlockAttnResReference(const BlockAttnResArgs& args);
void BlockAttnResBackwardReference(const BlockAttnResBackwardArgs& args);
void AttnResPrepareReference(const AttnResPrepareArgs& args);
void AttnResPrepareBackwardReference(const AttnResPrepareBackwardArgs& args);
void AttnResMergeReference(const AttnResMergeArgs& args);
void AttnResMergeBackwardReference(const AttnResMergeBackwardArgs& args);

// Query `s` of a tensor [S, ...]: its part, without the first dimension.
inline TensorView QueryPart(const TensorView& t, std::int64_t s) {
  TensorView part = t;
  if (!t.defined()) return part;
  if (t.numel() != 0) {  // otherwise the address may be null and the strides anything
    part.data = static_cast<std::byte*>(t.data) +
                s * t.strides[0] * static_cast<std::int64_t>(DTypeSize(t.dtype));
  }
  part.sizes = part.strides = Dims();
  for (int i = 1; i < t.rank(); ++i) {
    part.sizes.push_back(t.sizes[i]);
    part.strides.push_back(t.strides[i]);
  }
  return part;
}

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_ATTN_RES_H_
