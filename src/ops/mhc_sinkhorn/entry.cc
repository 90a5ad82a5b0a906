// mhc_sinkhorn in the operator table.
#include "anabranch/mhc_sinkhorn.h"
#include "src/ops/entries.h"
#include "src/ops/mhc_sinkhorn/mhc_sinkhorn.h"

namespace anabranch {
namespace {

enum Variant { kPlain, kFlat, kCaches, kClamp, kClampCaches };

std::vector<const char*> Variants() {
  return {"logits [*,n,n]", "logits [*,n*n]", "caches", "clamp", "clamp and caches"};
}

bool HasCaches(const Case& c) { return c.variant == kCaches || c.variant == kClampCaches; }
bool HasClamp(const Case& c) { return c.variant == kClamp || c.variant == kClampCaches; }

bool Supports(const Case& c) {
  return c.n >= 1 && c.n <= kMaxSinkhornStreams && c.num_iters >= 1 &&
         c.dtype != DType::kBFloat16 && c.dtype != DType::kFloat16;
}

template <class Args>
Args Attributes(const Case& c) {
  Args args;
  args.options.num_iters = c.num_iters;
  if (c.variant == kFlat) args.n = c.n;
  if (HasClamp(c)) {
    args.options.clamp_low = -0.75 * c.logit_scale;
    args.options.clamp_high = c.logit_scale;
  }
  return args;
}

TensorSpec Matrix(const Case& c, const char* name) {
  TensorSpec spec;
  spec.name = name;
  spec.dtype = CoefficientDType(c);
  spec.sizes =
      c.variant == kFlat ? Dims{c.batch, c.seq, c.n * c.n} : Dims{c.batch, c.seq, c.n, c.n};
  return spec;
}

void AddCaches(const Case& c, bool output, std::vector<TensorSpec>* specs) {
  if (!HasCaches(c)) return;
  const std::int64_t steps = 2 * c.num_iters;
  specs->push_back({.name = "sum_out",
                    .output = output,
                    .dtype = CoefficientDType(c),
                    .sizes = {steps, c.batch, c.seq, c.n},
                    .expandable = false});
  specs->push_back({.name = "norm_out",
                    .output = output,
                    .dtype = CoefficientDType(c),
                    .sizes = {steps, c.batch, c.seq, c.n, c.n},
                    .expandable = false});
}

std::vector<TensorSpec> ForwardTensors(const Case& c) {
  TensorSpec logits = Matrix(c, "logits");
  logits.scale = c.logit_scale;
  TensorSpec h_res = Matrix(c, "h_res");
  h_res.output = true;
  std::vector<TensorSpec> specs = {logits, h_res};
  AddCaches(c, true, &specs);
  return specs;
}

Status PrepareForward(const Case& c, std::span<const TensorView> t, Plan* plan,
                      const Context& context) {
  auto args = Attributes<MhcSinkhornArgs>(c);
  args.logits = t[0];
  args.h_res = t[1];
  if (HasCaches(c)) {
    args.sum_out = t[2];
    args.norm_out = t[3];
  }
  return Prepare(args, plan, context);
}

std::vector<TensorSpec> BackwardTensors(const Case& c) {
  TensorSpec grad = Matrix(c, "grad_h_res");
  grad.gradient_of = "h_res";
  TensorSpec grad_logits = Matrix(c, "grad_logits");
  grad_logits.output = true;
  grad_logits.gradient_of = "logits";
  // Every step divides an error by sums below 1; nearly one-hot columns cancel.
  grad_logits.tolerance = 64 * c.logit_scale;
  std::vector<TensorSpec> specs = {grad, grad_logits};
  if (c.variant != kCaches) {
    specs.push_back(Matrix(c, "logits"));
    specs.back().scale = c.logit_scale;
  }
  AddCaches(c, false, &specs);
  return specs;
}

Status PrepareBackward(const Case& c, std::span<const TensorView> t, Plan* plan,
                       const Context& context) {
  auto args = Attributes<MhcSinkhornBackwardArgs>(c);
  args.grad_h_res = t[0];
  args.grad_logits = t[1];
  if (c.variant != kCaches) args.logits = t[2];
  if (HasCaches(c)) {
    args.sum_out = t[t.size() - 2];
    args.norm_out = t[t.size() - 1];
  }
  return Prepare(args, plan, context);
}

// Flops count a division as one.
Cost MakeCost(const Case& c, int matrices, double flops_a_step) {
  const auto elements = static_cast<double>(c.tokens() * c.n * c.n);
  Cost cost;
  cost.roof = Cost::Roof::kFma;
  cost.bytes = elements * 4 * matrices;
  cost.flops = elements * flops_a_step * 2 * static_cast<double>(c.num_iters);
  return cost;
}

Cost ForwardCost(const Case& c) { return MakeCost(c, 2, 2); }
Cost BackwardCost(const Case& c) { return MakeCost(c, 3, 6); }

std::vector<Case> BenchCases() { return {{.seq = 65536, .n = 4}, {.seq = 1, .n = 4}}; }

}  // namespace

OperatorEntry MhcSinkhornEntry() {
  return {
      .name = "mhc_sinkhorn",
      .op = "mhc_sinkhorn",
      .pass = "forward",
      .summary = "logits to a nearly doubly stochastic mixing matrix, by alternate normalisation",
      .variants = Variants(),
      .supports = &Supports,
      .tensors = &ForwardTensors,
      .prepare = &PrepareForward,
      .cost = &ForwardCost,
      .bench_cases = BenchCases()};
}

OperatorEntry MhcSinkhornBackwardEntry() {
  return {.name = "mhc_sinkhorn_backward",
          .op = "mhc_sinkhorn",
          .pass = "backward",
          .summary = "gradient of mhc_sinkhorn",
          .variants = Variants(),
          .supports = &Supports,
          .tensors = &BackwardTensors,
          .prepare = &PrepareBackward,
          .cost = &BackwardCost,
          .bench_cases = BenchCases()};
}

}  // namespace anabranch
