// Shape inference and checks of attn_res_prepare, attn_res_merge and their backwards.
#include "src/core/caught.h"
#include "src/ops/attn_res/attn_res.h"
#include "src/ops/attn_res/checks.h"

namespace anabranch {
namespace {

constexpr char kPrepare[] = "attn_res_prepare";
constexpr char kPrepareBackward[] = "attn_res_prepare_backward";
constexpr char kMerge[] = "attn_res_merge";
constexpr char kMergeBackward[] = "attn_res_merge_backward";

template <class Args>
void CheckAttributes(Checker& c, const Args& a) {
  CheckFinite(c, "scale", a.scale);
  c.NonNegative("rmsnorm_eps", a.rmsnorm_eps);
}

// --- prepare

// What is known of [S], tokens and D.
struct Sizes {
  std::int64_t queries = kUnknown;
  Dims tokens;
  std::int64_t d = kUnknown;
};

template <class Args>
DType ActivationOf(const Args& a) {
  return a.blocks.empty() ? a.queries.dtype : a.blocks[0].dtype;
}

template <class Args>
void CheckPrepareTypes(Checker& c, const Args& a) {
  CheckSourceTypes(c, a.blocks, TensorView());
  c.Activation("queries", a.queries);
  if (!c.ok()) return;
  CheckParamType(c, "queries", a.queries, ActivationOf(a));
  CheckParamType(c, "rmsnorm_gamma", a.rmsnorm_gamma, ActivationOf(a));
}

// queries [S, D], the blocks, gamma; without blocks the tokens are taken from the first of `likes`.
template <class Args>
Sizes CheckPrepareShapes(Checker& c, const Args& a, std::initializer_list<NamedTensor> likes) {
  Sizes s;
  c.Sane("queries", a.queries, 2, "[S, D]");
  if (!c.ok()) return s;
  if (a.queries.rank() != 2) {
    c.Invalid("queries has shape " + ToString(a.queries.sizes) + ", expected [S, D]");
    return s;
  }
  s.queries = a.queries.sizes[0];
  s.d = a.queries.sizes[1];
  c.InRange("queries: S", s.queries, 1, INT32_MAX);
  c.InRange("queries: D", s.d, 1, INT64_MAX);
  if (!a.blocks.empty()) {
    Dims shape;
    CheckSourceShapes(c, a.blocks, TensorView(), &shape);
    if (!c.ok()) return s;
    s.tokens = shape;
    --s.tokens.rank;
    if (s.d == kUnknown) s.d = shape[shape.rank - 1];
    Dims wanted = Concat(s.tokens, {s.d});
    for (std::size_t i = 0; i < a.blocks.size(); ++i) {
      c.Matches(BlockName(i), a.blocks[i], &wanted, "D of queries");
    }
  } else {
    const NamedTensor* like = nullptr;
    for (const NamedTensor& t : likes) {
      if (like == nullptr && t.tensor.defined()) like = &t;
    }
    if (like == nullptr) {
      c.Fail(StatusCode::kNullArgument,
             "o is absent, expected a tensor that gives the tokens, since blocks is empty");
      return s;
    }
    const int inner = like == likes.begin() ? 1 : 0;  // the first one is [S, *, D]
    c.Sane(like->name, like->tensor, 1 + inner, "[S, *] or [S, *, D]");
    for (int i = 1; c.ok() && i < like->tensor.rank() - inner; ++i) {
      s.tokens.push_back(like->tensor.sizes[i]);
    }
  }
  if (a.rmsnorm_gamma.defined() && a.rmsnorm_gamma.rank() == 2) {
    Dims pattern{s.queries, s.d};
    c.Matches("rmsnorm_gamma", a.rmsnorm_gamma, &pattern, "queries");
  } else {
    CheckParamShape(c, "rmsnorm_gamma", a.rmsnorm_gamma, &s.d);
  }
  return s;
}

// o, m, l of all queries or their gradients: FP32 [S, *, D], [S, *], [S, *].
void CheckPartShapes(Checker& c, const Sizes& s, const NamedTensor& o, const NamedTensor& m,
                     const NamedTensor& l) {
  if (!c.ok()) return;
  Dims leading = Concat({s.queries}, s.tokens);
  Dims wide = Concat(leading, {s.d});
  c.Matches(o.name, o.tensor, &wide, "the blocks and queries");
  c.Matches(m.name, m.tensor, &leading, "the blocks and queries");
  c.Matches(l.name, l.tensor, &leading, "the blocks and queries");
}

// --- merge

template <class Args>
void CheckMergeTypes(Checker& c, const Args& a) {
  c.Activation("v", a.v);
  if (!c.ok()) return;
  c.Coefficients(a.v.dtype, {{"o", a.o}, {"m", a.m}, {"l", a.l}});
  CheckParamType(c, "query", a.query, a.v.dtype);
  CheckParamType(c, "rmsnorm_gamma", a.rmsnorm_gamma, a.v.dtype);
}

// The result is v's shape [*, D] with all that is known.
template <class Args>
Dims CheckMergeShapes(Checker& c, const Args& a) {
  c.Sane("v", a.v, 1, "[*, D]");
  Dims shape = a.v.sizes;
  if (!c.ok()) return shape;
  const int leading = shape.rank - 1;
  c.InRange("v: D", shape[leading], 1, INT64_MAX);
  c.Matches("o", a.o, &shape, "v");
  Dims tokens = shape;
  tokens.rank = leading;
  c.Matches("m", a.m, &tokens, "v");
  c.Matches("l", a.l, &tokens, "v");
  CheckParamShape(c, "query", a.query, &shape[leading]);
  CheckParamShape(c, "rmsnorm_gamma", a.rmsnorm_gamma, &shape[leading]);
  for (int i = 0; c.ok() && i < leading; ++i) shape[i] = tokens[i];
  return shape;
}

Dims Tokens(const Dims& shape) {
  Dims tokens = shape;
  --tokens.rank;
  return tokens;
}

template <class Args>
void RequireMergeInputs(Checker& c, const Args& a) {
  c.Required("o", a.o);
  c.Required("m", a.m);
  c.Required("l", a.l);
  c.Required("v", a.v);
  c.Required("query", a.query);
}

template <class Args>
void CheckGammaGrad(Checker& c, const Args& a) {
  if (a.grad_rmsnorm_gamma.defined() && !a.rmsnorm_gamma.defined()) {
    c.Invalid("grad_rmsnorm_gamma is given, expected none without rmsnorm_gamma");
  }
}

}  // namespace

Status InferAttnResPrepare(AttnResPrepareArgs* a) try {
  Checker c(kPrepare);
  CheckBlockList(c, a->blocks, 0);
  c.Required("queries", a->queries);
  CheckPrepareTypes(c, *a);
  if (c.ok()) c.Coefficients(ActivationOf(*a), {{"o", a->o}, {"m", a->m}, {"l", a->l}});
  const Sizes s = CheckPrepareShapes(c, *a, {{"o", a->o}, {"m", a->m}, {"l", a->l}});
  CheckPartShapes(c, s, {"o", a->o}, {"m", a->m}, {"l", a->l});
  CheckAttributes(c, *a);
  if (!c.ok()) return c.status();
  const DType coefficient = Checker::CoefficientFor(ActivationOf(*a));
  const Dims leading = Concat({s.queries}, s.tokens);
  SetOutput(&a->o, coefficient, Concat(leading, {s.d}));
  SetOutput(&a->m, coefficient, leading);
  SetOutput(&a->l, coefficient, leading);
  return Status();
} catch (...) {
  return Caught();
}

Status InferAttnResPrepareBackward(AttnResPrepareBackwardArgs* a) try {
  Checker c(kPrepareBackward);
  c.Required("grad_o", a->grad_o);
  c.Required("grad_m", a->grad_m);
  c.Required("grad_l", a->grad_l);
  CheckBlockList(c, a->blocks, 0);
  c.Required("queries", a->queries);
  CheckGradList(c, a->blocks, a->grad_blocks, true);
  CheckGammaGrad(c, *a);
  CheckPrepareTypes(c, *a);
  if (c.ok()) {
    c.Coefficients(ActivationOf(*a),
                   {{"grad_o", a->grad_o}, {"grad_m", a->grad_m}, {"grad_l", a->grad_l}});
    CheckGradTypes(c, a->grad_blocks, ActivationOf(*a));
  }
  const Sizes s = CheckPrepareShapes(
      c, *a, {{"grad_o", a->grad_o}, {"grad_m", a->grad_m}, {"grad_l", a->grad_l}});
  CheckPartShapes(c, s, {"grad_o", a->grad_o}, {"grad_m", a->grad_m}, {"grad_l", a->grad_l});
  Dims shape = Concat(s.tokens, {s.d});
  CheckGradShapes(c, a->grad_blocks, &shape);
  CheckParamGrad(c, "grad_queries", a->grad_queries, "queries", a->queries);
  CheckParamGrad(c, "grad_rmsnorm_gamma", a->grad_rmsnorm_gamma, "rmsnorm_gamma", a->rmsnorm_gamma);
  CheckAttributes(c, *a);
  if (!c.ok()) return c.status();
  SetGradBlocks(&a->grad_blocks, a->blocks.size(), ActivationOf(*a), shape);
  SetOutput(&a->grad_queries, a->queries.dtype, a->queries.sizes);
  if (a->rmsnorm_gamma.defined()) {
    SetOutput(&a->grad_rmsnorm_gamma, a->rmsnorm_gamma.dtype, a->rmsnorm_gamma.sizes);
  }
  return Status();
} catch (...) {
  return Caught();
}

Status InferAttnResMerge(AttnResMergeArgs* a) try {
  Checker c(kMerge);
  RequireMergeInputs(c, *a);
  CheckMergeTypes(c, *a);
  if (c.ok()) c.HasDType("h", a->h, a->v.dtype, "like v");
  Dims shape = CheckMergeShapes(c, *a);
  c.Matches("h", a->h, &shape, "v");
  CheckAttributes(c, *a);
  if (!c.ok()) return c.status();
  SetOutput(&a->h, a->v.dtype, shape);
  return Status();
} catch (...) {
  return Caught();
}

Status InferAttnResMergeBackward(AttnResMergeBackwardArgs* a) try {
  Checker c(kMergeBackward);
  c.Required("grad_h", a->grad_h);
  RequireMergeInputs(c, *a);
  CheckGammaGrad(c, *a);
  CheckMergeTypes(c, *a);
  if (c.ok()) {
    c.HasDType("grad_h", a->grad_h, a->v.dtype, "like v");
    c.HasDType("grad_v", a->grad_v, a->v.dtype, "like v");
    c.Coefficients(a->v.dtype,
                   {{"grad_o", a->grad_o}, {"grad_m", a->grad_m}, {"grad_l", a->grad_l}});
  }
  Dims shape = CheckMergeShapes(c, *a);
  c.Matches("grad_h", a->grad_h, &shape, "v");
  c.Matches("grad_o", a->grad_o, &shape, "v");
  c.Matches("grad_v", a->grad_v, &shape, "v");
  if (c.ok()) {
    Dims tokens = Tokens(shape);
    c.Matches("grad_m", a->grad_m, &tokens, "v");
    c.Matches("grad_l", a->grad_l, &tokens, "v");
  }
  CheckParamGrad(c, "grad_query", a->grad_query, "query", a->query);
  CheckParamGrad(c, "grad_rmsnorm_gamma", a->grad_rmsnorm_gamma, "rmsnorm_gamma", a->rmsnorm_gamma);
  CheckAttributes(c, *a);
  if (!c.ok()) return c.status();
  const DType coefficient = Checker::CoefficientFor(a->v.dtype);
  SetOutput(&a->grad_o, coefficient, shape);
  SetOutput(&a->grad_m, coefficient, Tokens(shape));
  SetOutput(&a->grad_l, coefficient, Tokens(shape));
  SetOutput(&a->grad_v, a->v.dtype, shape);
  SetOutput(&a->grad_query, a->query.dtype, a->query.sizes);
  if (a->rmsnorm_gamma.defined()) {
    SetOutput(&a->grad_rmsnorm_gamma, a->rmsnorm_gamma.dtype, a->rmsnorm_gamma.sizes);
  }
  return Status();
} catch (...) {
  return Caught();
}

Status Validate(const AttnResPrepareArgs& args) {
  Checker c(kPrepare);
  CheckBlockList(c, args.blocks, 0);
  c.Required("queries", args.queries);
  c.Required("o", args.o);
  c.Required("m", args.m);
  c.Required("l", args.l);
  if (!c.ok()) return c.status();
  AttnResPrepareArgs inferred = args;
  if (Status status = InferAttnResPrepare(&inferred); !status.ok()) return status;
  std::vector<NamedTensor> inputs = {{"queries", args.queries},
                                     {"rmsnorm_gamma", args.rmsnorm_gamma}};
  AppendBlocks(args.blocks, &inputs);
  const NamedTensor outputs[] = {{"o", args.o}, {"m", args.m}, {"l", args.l}};
  c.Memory(inputs, outputs);
  return c.status();
}

Status Validate(const AttnResPrepareBackwardArgs& args) {
  Checker c(kPrepareBackward);
  c.Required("grad_o", args.grad_o);
  c.Required("grad_m", args.grad_m);
  c.Required("grad_l", args.grad_l);
  CheckBlockList(c, args.blocks, 0);
  c.Required("queries", args.queries);
  CheckGradList(c, args.blocks, args.grad_blocks, false);
  c.Required("grad_queries", args.grad_queries);
  if (args.rmsnorm_gamma.defined() && args.enable_rmsnorm) {
    c.Required("grad_rmsnorm_gamma", args.grad_rmsnorm_gamma);
  }
  if (!c.ok()) return c.status();
  AttnResPrepareBackwardArgs inferred = args;
  if (Status status = InferAttnResPrepareBackward(&inferred); !status.ok()) return status;
  std::vector<NamedTensor> inputs = {{"grad_o", args.grad_o},
                                     {"grad_m", args.grad_m},
                                     {"grad_l", args.grad_l},
                                     {"queries", args.queries},
                                     {"rmsnorm_gamma", args.rmsnorm_gamma}};
  AppendBlocks(args.blocks, &inputs);
  std::vector<NamedTensor> outputs = {{"grad_queries", args.grad_queries},
                                      {"grad_rmsnorm_gamma", args.grad_rmsnorm_gamma}};
  AppendGradBlocks(args.grad_blocks, &outputs);
  c.Memory(inputs, outputs);
  return c.status();
}

Status Validate(const AttnResMergeArgs& args) {
  Checker c(kMerge);
  RequireMergeInputs(c, args);
  c.Required("h", args.h);
  if (!c.ok()) return c.status();
  AttnResMergeArgs inferred = args;
  if (Status status = InferAttnResMerge(&inferred); !status.ok()) return status;
  const NamedTensor inputs[] = {{"o", args.o},         {"m", args.m},
                                {"l", args.l},         {"v", args.v},
                                {"query", args.query}, {"rmsnorm_gamma", args.rmsnorm_gamma}};
  const NamedTensor outputs[] = {{"h", args.h}};
  c.Memory(inputs, outputs);
  return c.status();
}

Status Validate(const AttnResMergeBackwardArgs& args) {
  Checker c(kMergeBackward);
  c.Required("grad_h", args.grad_h);
  RequireMergeInputs(c, args);
  c.Required("grad_o", args.grad_o);
  c.Required("grad_m", args.grad_m);
  c.Required("grad_l", args.grad_l);
  c.Required("grad_v", args.grad_v);
  c.Required("grad_query", args.grad_query);
  if (args.rmsnorm_gamma.defined() && args.enable_rmsnorm) {
    c.Required("grad_rmsnorm_gamma", args.grad_rmsnorm_gamma);
  }
  if (!c.ok()) return c.status();
  AttnResMergeBackwardArgs inferred = args;
  if (Status status = InferAttnResMergeBackward(&inferred); !status.ok()) return status;
  const NamedTensor inputs[] = {{"grad_h", args.grad_h},
                                {"o", args.o},
                                {"m", args.m},
                                {"l", args.l},
                                {"v", args.v},
                                {"query", args.query},
                                {"rmsnorm_gamma", args.rmsnorm_gamma}};
  const NamedTensor outputs[] = {
      {"grad_o", args.grad_o},         {"grad_m", args.grad_m},
      {"grad_l", args.grad_l},         {"grad_v", args.grad_v},
      {"grad_query", args.grad_query}, {"grad_rmsnorm_gamma", args.grad_rmsnorm_gamma}};
  c.Memory(inputs, outputs);
  return c.status();
}

}  // namespace anabranch
