// mhc_permutation in the operator table.
#include "anabranch/mhc_permutation.h"
#include "src/kernels/permutation.h"
#include "src/ops/entries.h"

namespace anabranch {
namespace {

enum Variant { kMatrix, kFlat };

std::vector<const char*> Variants() { return {"h_res [*,n,n]", "h_res [*,n*n]"}; }

bool Supports(const Case& c) {
  return c.n >= 1 && c.n <= kPermutationStreams && c.dtype != DType::kBFloat16 &&
         c.dtype != DType::kFloat16;
}

TensorSpec Matrix(const Case& c, const char* name) {
  TensorSpec spec;
  spec.name = name;
  spec.dtype = CoefficientDType(c);
  spec.sizes =
      c.variant == kFlat ? Dims{c.batch, c.seq, c.n * c.n} : Dims{c.batch, c.seq, c.n, c.n};
  return spec;
}

TensorSpec Logits(const Case& c, const char* name) {
  return {.name = name,
          .dtype = CoefficientDType(c),
          .sizes = {c.batch, c.seq, PermutationCount(c.n)},
          .scale = c.logit_scale};
}

std::vector<TensorSpec> ForwardTensors(const Case& c) {
  TensorSpec h_res = Matrix(c, "h_res");
  h_res.output = true;
  return {Logits(c, "logits"), h_res};
}

Status PrepareForward(const Case& /*c*/, std::span<const TensorView> t, Plan* plan,
                      const Context& context) {
  MhcPermutationArgs args;
  args.logits = t[0];
  args.h_res = t[1];
  return Prepare(args, plan, context);
}

std::vector<TensorSpec> BackwardTensors(const Case& c) {
  TensorSpec grad = Matrix(c, "grad_h_res");
  grad.gradient_of = "h_res";
  TensorSpec grad_logits = Logits(c, "grad_logits");
  grad_logits.output = true;
  grad_logits.gradient_of = "logits";
  // Sums of n values of the gradient that cancel against their mean.
  grad_logits.magnitude = static_cast<double>(c.n);
  return {grad, Logits(c, "logits"), grad_logits};
}

Status PrepareBackward(const Case& /*c*/, std::span<const TensorView> t, Plan* plan,
                       const Context& context) {
  MhcPermutationBackwardArgs args;
  args.grad_h_res = t[0];
  args.logits = t[1];
  args.grad_logits = t[2];
  return Prepare(args, plan, context);
}

Cost MakeCost(const Case& c, int logit_rows, double flops_a_logit) {
  const auto logits = static_cast<double>(c.tokens() * PermutationCount(c.n));
  Cost cost;
  cost.roof = Cost::Roof::kFma;
  cost.bytes = 4 * (logits * logit_rows + static_cast<double>(c.tokens() * c.n * c.n));
  cost.flops = logits * flops_a_logit;
  return cost;
}

// An exponential counted as 16 flops.
Cost ForwardCost(const Case& c) { return MakeCost(c, 1, 19.0 + static_cast<double>(c.n)); }
Cost BackwardCost(const Case& c) { return MakeCost(c, 2, 23.0 + static_cast<double>(c.n)); }

std::vector<Case> BenchCases() { return {{.seq = 65536, .n = 4}, {.seq = 1, .n = 4}}; }

}  // namespace

OperatorEntry MhcPermutationEntry() {
  return {.name = "mhc_permutation",
          .op = "mhc_permutation",
          .pass = "forward",
          .summary = "softmax over all permutation matrices: a doubly stochastic mixing matrix",
          .variants = Variants(),
          .supports = &Supports,
          .tensors = &ForwardTensors,
          .prepare = &PrepareForward,
          .cost = &ForwardCost,
          .bench_cases = BenchCases()};
}

OperatorEntry MhcPermutationBackwardEntry() {
  return {.name = "mhc_permutation_backward",
          .op = "mhc_permutation",
          .pass = "backward",
          .summary = "gradient of mhc_permutation",
          .variants = Variants(),
          .supports = &Supports,
          .tensors = &BackwardTensors,
          .prepare = &PrepareBackward,
          .cost = &BackwardCost,
          .bench_cases = BenchCases()};
}

}  // namespace anabranch
