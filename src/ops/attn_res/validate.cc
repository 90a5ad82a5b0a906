// Checks of the attention residual operators: those of their descriptions, and their hatch.
#include <string>

#include "src/core/infer.h"
#include "src/ops/attn_res/attn_res.h"
#include "src/ops/attn_res/block_attn_res_spec.h"
#include "src/ops/attn_res/two_phase_spec.h"

namespace anabranch {

void specs::LeadByQueries(Checker& c, const TensorView& queries,
                          const std::vector<TensorView>& blocks,
                          std::initializer_list<NamedTensor> parts, Sizes* sizes, Face face) {
  c.Sane("queries", queries, 2, "[S, D]");
  if (c.ok() && queries.rank() != 2) {
    c.Invalid("queries has shape " + ToString(queries.sizes) + ", expected [S, D]");
  }
  if (!c.ok()) return;
  (*sizes)[Dim::kQueries] = queries.sizes[0];
  (*sizes)[Dim::kHidden] = queries.sizes[1];
  c.InRange("queries: S", queries.sizes[0], 1, INT32_MAX);
  c.InRange("queries: D", queries.sizes[1], 1, INT64_MAX);
  if (!blocks.empty()) {
    const ArgName name{face == Face::kC ? "blocksOptional" : "blocks", 0};
    c.Sane(name, blocks[0], 1, "[*, D]");
    if (c.ok()) sizes->tokens = LeadingDims(blocks[0], blocks[0].rank() - 1);
    sizes->Match(c, name, blocks[0], "T,D", "queries");
    return;
  }
  for (const NamedTensor& part : parts) {
    if (!part.tensor.defined()) continue;
    const int inner = &part == parts.begin() ? 1 : 0;  // the first one is [S, *, D]
    c.Sane(part.name, part.tensor, 1 + inner, inner == 1 ? "[S, *, D]" : "[S, *]");
    for (int i = 1; c.ok() && i < part.tensor.rank() - inner; ++i) {
      sizes->tokens.push_back(part.tensor.sizes[i]);
    }
    return;
  }
  if (face == Face::kPython) return;  // which cannot give o: one token without dimensions
  c.Fail(StatusCode::kNullArgument,
         parts.begin()->name.str() +
             " is absent, expected a tensor that gives the tokens, since there are no blocks");
}

Status InferBlockAttnRes(BlockAttnResArgs* args) { return Infer(specs::kBlockAttnRes, args); }
Status InferBlockAttnResBackward(BlockAttnResBackwardArgs* args) {
  return Infer(specs::kBlockAttnResBackward, args);
}
Status InferAttnResPrepare(AttnResPrepareArgs* args) { return Infer(specs::kAttnResPrepare, args); }
Status InferAttnResPrepareBackward(AttnResPrepareBackwardArgs* args) {
  return Infer(specs::kAttnResPrepareBackward, args);
}
Status InferAttnResMerge(AttnResMergeArgs* args) { return Infer(specs::kAttnResMerge, args); }
Status InferAttnResMergeBackward(AttnResMergeBackwardArgs* args) {
  return Infer(specs::kAttnResMergeBackward, args);
}

Status Validate(const BlockAttnResArgs& args, Face face) {
  return Validate(specs::kBlockAttnRes, args, face);
}
Status Validate(const BlockAttnResBackwardArgs& args, Face face) {
  return Validate(specs::kBlockAttnResBackward, args, face);
}
Status Validate(const AttnResPrepareArgs& args, Face face) {
  return Validate(specs::kAttnResPrepare, args, face);
}
Status Validate(const AttnResPrepareBackwardArgs& args, Face face) {
  return Validate(specs::kAttnResPrepareBackward, args, face);
}
Status Validate(const AttnResMergeArgs& args, Face face) {
  return Validate(specs::kAttnResMerge, args, face);
}
Status Validate(const AttnResMergeBackwardArgs& args, Face face) {
  return Validate(specs::kAttnResMergeBackward, args, face);
}

}  // namespace anabranch
