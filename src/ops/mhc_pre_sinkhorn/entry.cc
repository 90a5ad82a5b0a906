// mhc_pre_sinkhorn in the operator table.
#include <algorithm>
#include <cmath>

#include "anabranch/mhc_pre_sinkhorn.h"
#include "src/ops/entries.h"
#include "src/ops/mhc_spec.h"

namespace anabranch {
namespace {

struct Variant {
  const char* name;
  bool flat;      // h_res [*, n*n] and inv_rms [*, 1]
  bool caches;    // h_pre, h_mix, inv_rms
  bool iterates;  // sum_out, norm_out
  bool clamp;
};

constexpr Variant kVariants[] = {
    {"iterates recomputed", false, true, false, false},
    {"iterates cached", false, true, true, false},
    {"h_res [*,n*n], iterates cached", true, true, true, false},
    {"clamped, iterates recomputed", true, true, false, true},
    {"no caches", false, false, false, false},
};

const Variant& VariantOf(const Case& c) { return kVariants[c.variant]; }

std::vector<const char*> Variants() {
  std::vector<const char*> names;
  for (const Variant& v : kVariants) names.push_back(v.name);
  return names;
}

bool Supports(const Case& c) {
  return c.n >= 1 && c.n <= specs::kMaxPreStreams && c.d >= 1 && c.num_iters >= 1;
}

bool SupportsBackward(const Case& c) { return Supports(c) && VariantOf(c).caches; }

std::int64_t Rows(const Case& c) { return c.n * c.n + 2 * c.n; }

double Root(std::int64_t count) {
  return std::sqrt(static_cast<double>(std::max<std::int64_t>(count, 1)));
}

MhcOptions OptionsOf(const Case& c) {
  MhcOptions options;
  options.num_iters = c.num_iters;
  if (VariantOf(c).clamp) {
    options.clamp_low = -1.25;
    options.clamp_high = 0.75;
  }
  return options;
}

Dims ResSizes(const Case& c) {
  if (VariantOf(c).flat) return {c.batch, c.seq, c.n * c.n};
  return {c.batch, c.seq, c.n, c.n};
}

Dims RmsSizes(const Case& c) {
  if (VariantOf(c).flat) return {c.batch, c.seq, 1};
  return {c.batch, c.seq};
}

// x and the parameters; phi such that the logits have standard deviation logit_scale.
std::vector<TensorSpec> Parameters(const Case& c) {
  const DType dtype = CoefficientDType(c);
  const double scale = c.logit_scale / Root(c.n * c.d);
  return {{.name = "x", .dtype = c.dtype, .sizes = {c.batch, c.seq, c.n, c.d}},
          {.name = "phi", .dtype = dtype, .sizes = {Rows(c), c.n * c.d}, .scale = scale},
          {.name = "alpha", .dtype = dtype, .sizes = {3}, .mean = 1, .scale = 0.3},
          {.name = "bias", .dtype = dtype, .sizes = {Rows(c)}, .scale = 0.5}};
}

// The five caches in the order h_pre, h_mix, inv_rms, sum_out, norm_out.
void AddCaches(const Case& c, bool output, std::vector<TensorSpec>* specs) {
  const DType dtype = CoefficientDType(c);
  const double tolerance = (16 + Root(c.n * c.d)) * c.logit_scale;
  const auto add = [&](const char* name, const Dims& sizes) {
    specs->push_back({.name = name,
                      .output = output,
                      .dtype = dtype,
                      .sizes = sizes,
                      .tolerance = 4 * tolerance,
                      .expandable = false});
  };
  if (VariantOf(c).caches) {
    add("h_pre", {c.batch, c.seq, c.n});
    add("h_mix", {c.batch, c.seq, Rows(c)});
    add("inv_rms", RmsSizes(c));
  }
  if (VariantOf(c).iterates) {
    add("sum_out", {2 * c.num_iters, c.batch, c.seq, c.n});
    add("norm_out", {2 * c.num_iters, c.batch, c.seq, c.n, c.n});
  }
}

std::vector<TensorSpec> ForwardTensors(const Case& c) {
  const DType dtype = CoefficientDType(c);
  const double tolerance = (16 + Root(c.n * c.d)) * c.logit_scale;
  std::vector<TensorSpec> specs = Parameters(c);
  specs.push_back({.name = "h_in",
                   .output = true,
                   .dtype = c.dtype,
                   .sizes = {c.batch, c.seq, c.d},
                   .magnitude = Root(c.n),
                   .tolerance = tolerance});
  specs.push_back({.name = "h_post",
                   .output = true,
                   .dtype = dtype,
                   .sizes = {c.batch, c.seq, c.n},
                   .tolerance = tolerance});
  specs.push_back({.name = "h_res",
                   .output = true,
                   .dtype = dtype,
                   .sizes = ResSizes(c),
                   .tolerance = 4 * tolerance});
  AddCaches(c, true, &specs);
  return specs;
}

Status PrepareForward(const Case& c, std::span<const TensorView> t, Plan* plan,
                      const Context& context) {
  std::size_t k = 0;
  MhcPreSinkhornArgs args;
  args.options = OptionsOf(c);
  args.x = t[k++];
  args.phi = t[k++];
  args.alpha = t[k++];
  args.bias = t[k++];
  args.h_in = t[k++];
  args.h_post = t[k++];
  args.h_res = t[k++];
  if (VariantOf(c).caches) {
    args.h_pre = t[k++];
    args.h_mix = t[k++];
    args.inv_rms = t[k++];
  }
  if (VariantOf(c).iterates) {
    args.sum_out = t[k++];
    args.norm_out = t[k++];
  }
  return Prepare(args, plan, context);
}

TensorSpec Gradient(const Case& c, const char* name, const char* of, DType dtype, const Dims& sizes,
                    double magnitude) {
  // With very few values the RMS term cancels most of the rest: the errors are of the size of what
  // was cancelled.
  return {
      .name = name,
      .output = true,
      .dtype = dtype,
      .sizes = sizes,
      .gradient_of = of,
      .magnitude = magnitude * (1 + c.logit_scale),
      .tolerance = 64 + 2 * Root(c.d) + Root(c.tokens()) + 2000 / static_cast<double>(c.n * c.d)};
}

std::vector<TensorSpec> BackwardTensors(const Case& c) {
  const DType dtype = CoefficientDType(c);
  std::vector<TensorSpec> specs = Parameters(c);
  specs.push_back({.name = "grad_h_in",
                   .dtype = c.dtype,
                   .sizes = {c.batch, c.seq, c.d},
                   .gradient_of = "h_in"});
  specs.push_back({.name = "grad_h_post",
                   .dtype = dtype,
                   .sizes = {c.batch, c.seq, c.n},
                   .gradient_of = "h_post"});
  specs.push_back(
      {.name = "grad_h_res", .dtype = dtype, .sizes = ResSizes(c), .gradient_of = "h_res"});
  const double sum = Root(c.d) * Root(c.tokens());
  specs.push_back(Gradient(c, "grad_x", "x", c.dtype, {c.batch, c.seq, c.n, c.d}, 1 + Root(c.n)));
  specs.push_back(Gradient(c, "grad_phi", "phi", dtype, {Rows(c), c.n * c.d}, sum));
  specs.push_back(Gradient(c, "grad_alpha", "alpha", dtype, {3}, sum * Root(Rows(c))));
  specs.push_back(Gradient(c, "grad_bias", "bias", dtype, {Rows(c)}, sum));
  AddCaches(c, false, &specs);
  return specs;
}

Status PrepareBackward(const Case& c, std::span<const TensorView> t, Plan* plan,
                       const Context& context) {
  std::size_t k = 0;
  MhcPreSinkhornBackwardArgs args;
  args.options = OptionsOf(c);
  args.x = t[k++];
  args.phi = t[k++];
  args.alpha = t[k++];
  args.bias = t[k++];
  args.grad_h_in = t[k++];
  args.grad_h_post = t[k++];
  args.grad_h_res = t[k++];
  args.grad_x = t[k++];
  args.grad_phi = t[k++];
  args.grad_alpha = t[k++];
  args.grad_bias = t[k++];
  args.h_pre = t[k++];
  args.h_mix = t[k++];
  args.inv_rms = t[k++];
  if (VariantOf(c).iterates) {
    args.sum_out = t[k++];
    args.norm_out = t[k++];
  }
  return Prepare(args, plan, context);
}

Cost MakeCost(const Case& c, std::int64_t streams, double flops) {
  Cost cost;
  cost.roof = Cost::Roof::kFma;
  cost.flops = flops * static_cast<double>(Rows(c) * c.n * c.d * c.tokens());
  cost.bytes =
      static_cast<double>(c.tokens() * c.d * streams) * static_cast<double>(DTypeSize(c.dtype)) +
      4.0 * static_cast<double>(Rows(c) * c.n * c.d);
  return cost;
}

Cost ForwardCost(const Case& c) { return MakeCost(c, c.n + 1, 2); }

Cost BackwardCost(const Case& c) { return MakeCost(c, 2 * c.n + 1, 4); }

std::vector<Case> BenchCases() {
  return {{.seq = 2048, .n = 4, .d = 4096, .dtype = DType::kBFloat16},
          {.seq = 2048, .n = 4, .d = 7168, .dtype = DType::kBFloat16},
          {.seq = 16, .n = 4, .d = 4096, .dtype = DType::kBFloat16},
          {.seq = 1, .n = 4, .d = 4096, .dtype = DType::kBFloat16}};
}

}  // namespace

OperatorEntry MhcPreSinkhornEntry() {
  return {.name = "mhc_pre_sinkhorn",
          .op = "mhc_pre_sinkhorn",
          .pass = "forward",
          .summary = "mhc_pre and mhc_sinkhorn in one pass over the streams",
          .variants = Variants(),
          .supports = &Supports,
          .tensors = &ForwardTensors,
          .prepare = &PrepareForward,
          .cost = &ForwardCost,
          .bench_cases = BenchCases()};
}

OperatorEntry MhcPreSinkhornBackwardEntry() {
  return {.name = "mhc_pre_sinkhorn_backward",
          .op = "mhc_pre_sinkhorn",
          .pass = "backward",
          .summary = "gradients of mhc_pre_sinkhorn",
          .variants = Variants(),
          .supports = &SupportsBackward,
          .tensors = &BackwardTensors,
          .prepare = &PrepareBackward,
          .cost = &BackwardCost,
          .bench_cases = BenchCases()};
}

}  // namespace anabranch
