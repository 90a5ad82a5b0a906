// Shape inference and checks of block_attn_res and its backward.
#include "src/core/caught.h"
#include "src/ops/attn_res/attn_res.h"
#include "src/ops/attn_res/checks.h"

namespace anabranch {
namespace {

constexpr char kForward[] = "block_attn_res";
constexpr char kBackward[] = "block_attn_res_backward";

std::int64_t CountSources(const std::vector<TensorView>& blocks, const TensorView& partial) {
  return static_cast<std::int64_t>(blocks.size()) + (partial.defined() ? 1 : 0);
}

// A cache [*, L], or [*, L, 1] where `column` allows it; refines the tokens of *shape.
void CheckCache(Checker& c, const char* name, const TensorView& t, std::int64_t sources,
                bool column, Dims* shape) {
  if (!c.ok() || !t.defined()) return;
  const int leading = shape->rank - 1;
  Dims tokens;
  for (int i = 0; i < leading; ++i) tokens.push_back((*shape)[i]);
  Dims inner{sources};
  if (column && t.rank() != leading + 1) inner.push_back(1);
  c.MatchesTokens(name, t, &tokens, &inner, BlockName(0));
  for (int i = 0; c.ok() && i < leading; ++i) (*shape)[i] = tokens[i];
}

template <class Args>
void CheckAttributes(Checker& c, const Args& a) {
  CheckFinite(c, "scale", a.scale);
  c.NonNegative("rmsnorm_eps", a.rmsnorm_eps);
}

// Shapes of what forward and backward have in common; the result is [*, D].
template <class Args>
Dims CheckInputShapes(Checker& c, const Args& a) {
  Dims shape;
  CheckSourceShapes(c, a.blocks, a.partial_block, &shape);
  if (!c.ok()) return shape;
  CheckParamShape(c, "proj_weight", a.proj_weight, &shape[shape.rank - 1]);
  CheckParamShape(c, "rmsnorm_gamma", a.rmsnorm_gamma, &shape[shape.rank - 1]);
  const std::int64_t sources = CountSources(a.blocks, a.partial_block);
  CheckCache(c, "rms_cache", a.rms_cache, sources, true, &shape);
  CheckCache(c, "alpha_cache", a.alpha_cache, sources, false, &shape);
  return shape;
}

template <class Args>
void CheckInputTypes(Checker& c, const Args& a) {
  CheckSourceTypes(c, a.blocks, a.partial_block);
  if (!c.ok()) return;
  const DType activation = a.blocks[0].dtype;
  CheckParamType(c, "proj_weight", a.proj_weight, activation);
  CheckParamType(c, "rmsnorm_gamma", a.rmsnorm_gamma, activation);
  c.Coefficients(activation, {{"rms_cache", a.rms_cache}, {"alpha_cache", a.alpha_cache}});
}

// What is there must be there for a reason.
void CheckGradPresence(Checker& c, const BlockAttnResBackwardArgs& a) {
  if (a.grad_partial_block.defined() && !a.partial_block.defined()) {
    c.Invalid("grad_partial_block is given, expected none without partial_block");
  }
  if (a.grad_rmsnorm_gamma.defined() && !a.rmsnorm_gamma.defined()) {
    c.Invalid("grad_rmsnorm_gamma is given, expected none without rmsnorm_gamma");
  }
}

void RequireInputs(Checker& c, const BlockAttnResBackwardArgs& a) {
  c.Required("grad_h", a.grad_h);
  CheckBlockList(c, a.blocks, 1);
  c.Required("proj_weight", a.proj_weight);
  c.Required("alpha_cache", a.alpha_cache);
}

}  // namespace

Status InferBlockAttnRes(BlockAttnResArgs* a) try {
  Checker c(kForward);
  CheckBlockList(c, a->blocks, 1);
  c.Required("proj_weight", a->proj_weight);
  CheckInputTypes(c, *a);
  if (c.ok()) c.HasDType("h", a->h, a->blocks[0].dtype, "like blocks[0]");
  Dims shape = CheckInputShapes(c, *a);
  c.Matches("h", a->h, &shape, "blocks[0]");
  CheckAttributes(c, *a);
  if (!c.ok()) return c.status();
  SetOutput(&a->h, a->blocks[0].dtype, shape);
  return Status();
} catch (...) {
  return Caught();
}

Status InferBlockAttnResBackward(BlockAttnResBackwardArgs* a) try {
  Checker c(kBackward);
  RequireInputs(c, *a);
  CheckGradList(c, a->blocks, a->grad_blocks, true);
  CheckGradPresence(c, *a);
  CheckInputTypes(c, *a);
  if (c.ok()) {
    const DType activation = a->blocks[0].dtype;
    c.HasDType("grad_h", a->grad_h, activation, "like blocks[0]");
    CheckGradTypes(c, a->grad_blocks, activation);
    c.HasDType("grad_partial_block", a->grad_partial_block, activation, "like blocks[0]");
  }
  Dims shape = CheckInputShapes(c, *a);
  c.Matches("grad_h", a->grad_h, &shape, "blocks[0]");
  CheckGradShapes(c, a->grad_blocks, &shape);
  c.Matches("grad_partial_block", a->grad_partial_block, &shape, "blocks[0]");
  CheckParamGrad(c, "grad_proj_weight", a->grad_proj_weight, "proj_weight", a->proj_weight);
  CheckParamGrad(c, "grad_rmsnorm_gamma", a->grad_rmsnorm_gamma, "rmsnorm_gamma", a->rmsnorm_gamma);
  CheckAttributes(c, *a);
  if (!c.ok()) return c.status();
  const DType activation = a->blocks[0].dtype;
  SetGradBlocks(&a->grad_blocks, a->blocks.size(), activation, shape);
  if (a->partial_block.defined()) SetOutput(&a->grad_partial_block, activation, shape);
  SetOutput(&a->grad_proj_weight, a->proj_weight.dtype, a->proj_weight.sizes);
  if (a->rmsnorm_gamma.defined()) {
    SetOutput(&a->grad_rmsnorm_gamma, a->rmsnorm_gamma.dtype, a->rmsnorm_gamma.sizes);
  }
  return Status();
} catch (...) {
  return Caught();
}

Status Validate(const BlockAttnResArgs& args) {
  Checker c(kForward);
  CheckBlockList(c, args.blocks, 1);
  c.Required("proj_weight", args.proj_weight);
  c.Required("h", args.h);
  if (!c.ok()) return c.status();
  BlockAttnResArgs inferred = args;
  if (Status status = InferBlockAttnRes(&inferred); !status.ok()) return status;
  std::vector<NamedTensor> inputs = {{"partial_block", args.partial_block},
                                     {"proj_weight", args.proj_weight},
                                     {"rmsnorm_gamma", args.rmsnorm_gamma}};
  AppendBlocks(args.blocks, &inputs);
  const NamedTensor outputs[] = {
      {"h", args.h}, {"rms_cache", args.rms_cache}, {"alpha_cache", args.alpha_cache}};
  c.Memory(inputs, outputs);
  return c.status();
}

Status Validate(const BlockAttnResBackwardArgs& args) {
  Checker c(kBackward);
  RequireInputs(c, args);
  CheckGradList(c, args.blocks, args.grad_blocks, false);
  if (args.partial_block.defined()) c.Required("grad_partial_block", args.grad_partial_block);
  c.Required("grad_proj_weight", args.grad_proj_weight);
  if (args.rmsnorm_gamma.defined() && args.enable_rmsnorm) {
    c.Required("grad_rmsnorm_gamma", args.grad_rmsnorm_gamma);
  }
  if (!c.ok()) return c.status();
  BlockAttnResBackwardArgs inferred = args;
  if (Status status = InferBlockAttnResBackward(&inferred); !status.ok()) return status;
  std::vector<NamedTensor> inputs = {
      {"grad_h", args.grad_h},           {"partial_block", args.partial_block},
      {"proj_weight", args.proj_weight}, {"rmsnorm_gamma", args.rmsnorm_gamma},
      {"alpha_cache", args.alpha_cache}, {"rms_cache", args.rms_cache}};
  AppendBlocks(args.blocks, &inputs);
  std::vector<NamedTensor> outputs = {{"grad_partial_block", args.grad_partial_block},
                                      {"grad_proj_weight", args.grad_proj_weight},
                                      {"grad_rmsnorm_gamma", args.grad_rmsnorm_gamma}};
  AppendGradBlocks(args.grad_blocks, &outputs);
  c.Memory(inputs, outputs);
  return c.status();
}

}  // namespace anabranch
