#include <string>

#include "src/core/caught.h"
#include "src/core/check.h"
#include "src/kernels/permutation.h"
#include "src/ops/mhc_permutation/mhc_permutation.h"

namespace anabranch {
namespace {

constexpr char kForward[] = "mhc_permutation";
constexpr char kBackward[] = "mhc_permutation_backward";

void SameDType(Checker& c, const TensorView& logits, std::initializer_list<NamedTensor> others) {
  if (logits.dtype != DType::kFloat64) {
    c.HasDType("logits", logits, DType::kFloat32, "(coefficients are float32)");
  }
  for (const NamedTensor& t : others) c.HasDType(t.name, t.tensor, logits.dtype, "like logits");
}

// Leading dimensions, and n (kUnknown if the last dimension is).
Dims FromLogits(Checker& c, const TensorView& logits, std::int64_t* n) {
  c.Sane("logits", logits, 1, "[*, n!]");
  if (!c.ok()) return Dims();
  const std::int64_t count = logits.sizes[logits.rank() - 1];
  *n = count == kUnknown ? kUnknown : StreamsOfPermutations(count);
  if (*n == 0) {
    c.Invalid("logits has shape " + ToString(logits.sizes) +
              ", expected a last dimension of n! with n = 1..5: 1, 2, 6, 24 or 120");
  }
  return LeadingDims(logits, logits.rank() - 1);
}

std::int64_t CountOf(Checker& c, const char* name, std::int64_t n) {
  if (n == kUnknown) return kUnknown;
  c.InRange(name, n, 1, kPermutationStreams);
  return c.ok() ? PermutationCount(n) : kUnknown;
}

}  // namespace

std::int64_t StreamsOfPermutations(std::int64_t count) {
  for (std::int64_t n = 1; n <= kPermutationStreams; ++n) {
    if (PermutationCount(n) == count) return n;
  }
  return 0;
}

Status InferMhcPermutation(MhcPermutationArgs* a) try {
  Checker c(kForward);
  c.Required("logits", a->logits);
  SameDType(c, a->logits, {{"h_res", a->h_res}});
  std::int64_t n = kUnknown;
  Dims tokens = FromLogits(c, a->logits, &n);
  c.MatchesMatrix("h_res", a->h_res, &tokens, &n, "logits");
  CountOf(c, "h_res: n", n);
  if (!c.ok()) return c.status();
  SetOutput(&a->h_res, a->logits.dtype, Concat(tokens, {n, n}));
  return Status();
} catch (...) {
  return Caught();
}

Status InferMhcPermutationBackward(MhcPermutationBackwardArgs* a) try {
  Checker c(kBackward);
  c.Required("grad_h_res", a->grad_h_res);
  c.Required("logits", a->logits);
  SameDType(c, a->logits, {{"grad_h_res", a->grad_h_res}, {"grad_logits", a->grad_logits}});
  std::int64_t n = kUnknown;
  Dims tokens = FromLogits(c, a->logits, &n);
  c.MatchesMatrix("grad_h_res", a->grad_h_res, &tokens, &n, "logits");
  Dims count{CountOf(c, "grad_h_res: n", n)};
  c.MatchesTokens("grad_logits", a->grad_logits, &tokens, &count, "logits");
  if (!c.ok()) return c.status();
  SetOutput(&a->grad_logits, a->logits.dtype, Concat(tokens, count));
  return Status();
} catch (...) {
  return Caught();
}

Status Validate(const MhcPermutationArgs& args) {
  Checker c(kForward);
  c.Required("logits", args.logits);
  c.Required("h_res", args.h_res);
  const NamedTensor inputs[] = {{"logits", args.logits}};
  const NamedTensor outputs[] = {{"h_res", args.h_res}};
  return c.Call(args, InferMhcPermutation, inputs, outputs);
}

Status Validate(const MhcPermutationBackwardArgs& args) {
  Checker c(kBackward);
  c.Required("grad_h_res", args.grad_h_res);
  c.Required("logits", args.logits);
  c.Required("grad_logits", args.grad_logits);
  const NamedTensor inputs[] = {{"grad_h_res", args.grad_h_res}, {"logits", args.logits}};
  const NamedTensor outputs[] = {{"grad_logits", args.grad_logits, "logits"}};
  return c.Call(args, InferMhcPermutationBackward, inputs, outputs);
}

}  // namespace anabranch
