#include <cmath>
#include <string>

#include "src/core/caught.h"
#include "src/core/check.h"
#include "src/ops/mhc_sinkhorn/mhc_sinkhorn.h"

namespace anabranch {
namespace {

constexpr char kForward[] = "mhc_sinkhorn";
constexpr char kBackward[] = "mhc_sinkhorn_backward";
// Keeps every size of a workspace below 2^63 bytes.
constexpr std::int64_t kMaxIters = std::int64_t{1} << 40;

// An attribute in 1..high: InRange would let kUnknown pass, which only sizes can be.
void Attribute(Checker& c, const char* name, std::int64_t value, std::int64_t high) {
  if (c.ok() && (value < 1 || value > high)) {
    c.Invalid(std::string(name) + " is " + std::to_string(value) + ", expected 1.." +
              std::to_string(high));
  }
}

bool IsMatrixForm(const TensorView& t, std::int64_t n) {
  if (n == 0) return true;
  const auto fits = [n](std::int64_t size) { return size == n || size == kUnknown; };
  return t.rank() >= 2 && fits(t.sizes[t.rank() - 1]) && fits(t.sizes[t.rank() - 2]);
}

// Leading dimensions of the tensor that everything else must match, and n.
Dims FromMatrices(Checker& c, const char* name, const TensorView& t, std::int64_t given_n,
                  std::int64_t* n) {
  if (given_n != 0) Attribute(c, "n", given_n, kMaxSinkhornStreams);
  c.Sane(name, t, given_n == 0 ? 2 : 1, given_n == 0 ? "[*, n, n]" : "[*, n, n] or [*, n*n]");
  if (!c.ok()) return Dims();
  *n = given_n == 0 ? kUnknown : given_n;
  Dims leading = LeadingDims(t, t.rank() - (IsMatrixForm(t, given_n) ? 2 : 1));
  c.MatchesMatrix(name, t, &leading, n, "n");
  c.InRange((std::string(name) + ": n").c_str(), *n, 1, kMaxSinkhornStreams);
  return leading;
}

void CheckCache(Checker& c, const char* name, const TensorView& t, std::int64_t steps, Dims* tokens,
                Dims inner, const char* like) {
  if (!c.ok() || !t.defined()) return;
  c.Sane(name, t, 1, "[2*num_iters, *, n] or [2*num_iters, *, n, n]");
  if (!c.ok()) return;
  Dims pattern{steps};
  if (t.rank() == 2 + inner.rank && tokens->rank != 1) {  // tokens flattened to T
    pattern.push_back(NumElements(*tokens));
  } else {
    pattern = Concat(pattern, *tokens);
  }
  pattern = Concat(pattern, inner);
  c.Matches(name, t, &pattern, like);
}

void CheckCaches(Checker& c, const TensorView& sum_out, const TensorView& norm_out,
                 const MhcOptions& o, Dims* tokens, std::int64_t n) {
  if (!c.ok()) return;  // num_iters may be anything
  const char* like = "the matrices and num_iters";
  CheckCache(c, "sum_out", sum_out, 2 * o.num_iters, tokens, {n}, like);
  CheckCache(c, "norm_out", norm_out, 2 * o.num_iters, tokens, {n, n}, like);
}

void BothOrNone(Checker& c, const TensorView& sum_out, const TensorView& norm_out) {
  if (sum_out.defined() == norm_out.defined()) return;
  c.Invalid(sum_out.defined() ? "norm_out is absent and sum_out is not, expected both or none"
                              : "sum_out is absent and norm_out is not, expected both or none");
}

void CheckOptions(Checker& c, const MhcOptions& o) {
  Attribute(c, "num_iters", o.num_iters, kMaxIters);
  c.NonNegative("eps", o.eps);
  if (!(o.clamp_low <= o.clamp_high)) {  // NaN too
    c.Invalid("clamp is [" + std::to_string(o.clamp_low) + ", " + std::to_string(o.clamp_high) +
              "], expected low <= high");
  }
}

void SameDType(Checker& c, const char* name, const TensorView& first,
               std::initializer_list<NamedTensor> others) {
  if (first.dtype != DType::kFloat64) {
    c.HasDType(name, first, DType::kFloat32, "(coefficients are float32)");
  }
  for (const NamedTensor& t : others) {
    c.HasDType(t.name, t.tensor, first.dtype, (std::string("like ") + name).c_str());
  }
}

}  // namespace

Status InferMhcSinkhorn(MhcSinkhornArgs* a) try {
  Checker c(kForward);
  c.Required("logits", a->logits);
  BothOrNone(c, a->sum_out, a->norm_out);
  SameDType(c, "logits", a->logits,
            {{"h_res", a->h_res}, {"sum_out", a->sum_out}, {"norm_out", a->norm_out}});
  std::int64_t n = kUnknown;
  Dims tokens = FromMatrices(c, "logits", a->logits, a->n, &n);
  c.MatchesMatrix("h_res", a->h_res, &tokens, &n, "logits");
  CheckOptions(c, a->options);
  CheckCaches(c, a->sum_out, a->norm_out, a->options, &tokens, n);
  if (!c.ok()) return c.status();
  const bool matrix = a->logits.rank() == tokens.rank + 2;
  SetOutput(&a->h_res, a->logits.dtype,
            matrix ? Concat(tokens, {n, n}) : Concat(tokens, {n == kUnknown ? n : n * n}));
  return Status();
} catch (...) {
  return Caught();
}

Status InferMhcSinkhornBackward(MhcSinkhornBackwardArgs* a) try {
  Checker c(kBackward);
  c.Required("grad_h_res", a->grad_h_res);
  BothOrNone(c, a->sum_out, a->norm_out);
  if (!a->sum_out.defined() || Clamps(a->options)) c.Required("logits", a->logits);
  SameDType(c, "grad_h_res", a->grad_h_res,
            {{"logits", a->logits},
             {"sum_out", a->sum_out},
             {"norm_out", a->norm_out},
             {"grad_logits", a->grad_logits}});
  std::int64_t n = kUnknown;
  Dims tokens = FromMatrices(c, "grad_h_res", a->grad_h_res, a->n, &n);
  c.MatchesMatrix("logits", a->logits, &tokens, &n, "grad_h_res");
  c.MatchesMatrix("grad_logits", a->grad_logits, &tokens, &n, "grad_h_res");
  CheckOptions(c, a->options);
  CheckCaches(c, a->sum_out, a->norm_out, a->options, &tokens, n);
  if (!c.ok()) return c.status();
  const bool matrix = a->grad_h_res.rank() == tokens.rank + 2;
  SetOutput(&a->grad_logits, a->grad_h_res.dtype,
            matrix ? Concat(tokens, {n, n}) : Concat(tokens, {n == kUnknown ? n : n * n}));
  return Status();
} catch (...) {
  return Caught();
}

Status Validate(const MhcSinkhornArgs& args) {
  Checker c(kForward);
  c.Required("logits", args.logits);
  c.Required("h_res", args.h_res);
  const NamedTensor inputs[] = {{"logits", args.logits}};
  const NamedTensor outputs[] = {
      {"h_res", args.h_res, "logits"}, {"sum_out", args.sum_out}, {"norm_out", args.norm_out}};
  return c.Call(args, InferMhcSinkhorn, inputs, outputs);
}

Status Validate(const MhcSinkhornBackwardArgs& args) {
  Checker c(kBackward);
  c.Required("grad_h_res", args.grad_h_res);
  c.Required("grad_logits", args.grad_logits);
  const NamedTensor inputs[] = {{"grad_h_res", args.grad_h_res},
                                {"logits", args.logits},
                                {"sum_out", args.sum_out},
                                {"norm_out", args.norm_out}};
  const NamedTensor outputs[] = {{"grad_logits", args.grad_logits, "grad_h_res"}};
  return c.Call(args, InferMhcSinkhornBackward, inputs, outputs);
}

SinkhornShape::SinkhornShape(const TensorView& t, std::int64_t given_n) {
  const bool matrix = IsMatrixForm(t, given_n);
  leading = t.rank() - (matrix ? 2 : 1);
  tokens = CountTokens(t.sizes, leading);
  n = given_n != 0 ? given_n : t.sizes[t.rank() - 1];
}

CacheRows::CacheRows(const TensorView& view, int inner) {
  if (!view.defined()) return;
  TensorView step = view;
  step.sizes = Dims();
  step.strides = Dims();
  for (int i = 1; i < view.rank(); ++i) {
    step.sizes.push_back(view.sizes[i]);
    step.strides.push_back(view.strides[i]);
  }
  rows = TokenRows(step, inner);
  step_stride = view.strides[0];
}

}  // namespace anabranch
