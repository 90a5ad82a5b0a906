// mhc_pre in the operator table.
#include <algorithm>
#include <cmath>

#include "anabranch/mhc_pre.h"
#include "src/core/sizes.h"
#include "src/ops/entries.h"
#include "src/ops/mhc_spec.h"

namespace anabranch {
namespace {

struct Variant {
  const char* name;
  Residual residual;
  bool flat;  // h_res [*, n*n]
  bool gamma;
  bool caches;
  bool grad_x_post;
};

constexpr Variant kVariants[] = {
    {"matrix", Residual::kMatrix, false, false, true, false},
    {"matrix, gamma", Residual::kMatrix, false, true, true, false},
    {"matrix [*,n*n], grad_x_post", Residual::kMatrix, true, false, true, true},
    {"matrix, gamma, grad_x_post", Residual::kMatrix, false, true, true, true},
    {"permutation", Residual::kPermutation, false, false, true, false},
    {"permutation, gamma, grad_x_post", Residual::kPermutation, false, true, true, true},
    {"no residual part", Residual::kNone, false, false, true, false},
    {"no residual part, gamma, grad_x_post", Residual::kNone, false, true, true, true},
    {"matrix, no caches", Residual::kMatrix, false, false, false, false},
    {"permutation, gamma, no caches", Residual::kPermutation, false, true, false, false},
};

const Variant& VariantOf(const Case& c) { return kVariants[c.variant]; }

std::vector<const char*> Variants() {
  std::vector<const char*> names;
  for (const Variant& v : kVariants) names.push_back(v.name);
  return names;
}

bool Supports(const Case& c) {
  const bool permutation = VariantOf(c).residual == Residual::kPermutation;
  return c.n >= 1 && c.n <= (permutation ? kMaxPermutationStreams : specs::kMaxPreStreams) &&
         c.d >= 1;
}

bool SupportsBackward(const Case& c) { return Supports(c) && VariantOf(c).caches; }

std::int64_t Rows(const Case& c) { return 2 * c.n + ResidualSize(VariantOf(c).residual, c.n); }

Dims ResSizes(const Case& c) {
  const Variant& v = VariantOf(c);
  if (v.residual == Residual::kMatrix && !v.flat) return {c.batch, c.seq, c.n, c.n};
  return {c.batch, c.seq, ResidualSize(v.residual, c.n)};
}

// phi such that the logits have standard deviation logit_scale.
double PhiScale(const Case& c) { return c.logit_scale / std::sqrt(static_cast<double>(c.n * c.d)); }

double Root(std::int64_t count) {
  return std::sqrt(static_cast<double>(std::max<std::int64_t>(count, 1)));
}

std::vector<TensorSpec> Parameters(const Case& c) {
  const DType dtype = CoefficientDType(c);
  std::vector<TensorSpec> specs = {
      {.name = "x", .dtype = c.dtype, .sizes = {c.batch, c.seq, c.n, c.d}},
      {.name = "phi", .dtype = dtype, .sizes = {Rows(c), c.n * c.d}, .scale = PhiScale(c)},
      {.name = "alpha",
       .dtype = dtype,
       .sizes = {VariantOf(c).residual == Residual::kNone ? 2 : 3},
       .mean = 1,
       .scale = 0.3}};
  return specs;
}

TensorSpec Gamma(const Case& c) {
  return {
      .name = "gamma", .dtype = CoefficientDType(c), .sizes = {c.n, c.d}, .mean = 1, .scale = 0.2};
}

std::vector<TensorSpec> ForwardTensors(const Case& c) {
  const Variant& v = VariantOf(c);
  const DType dtype = CoefficientDType(c);
  const double sum = 16 + Root(c.n * c.d);
  const double logits = sum * c.logit_scale;
  std::vector<TensorSpec> specs = Parameters(c);
  specs.push_back({.name = "bias", .dtype = dtype, .sizes = {Rows(c)}, .scale = 0.5});
  specs.push_back({.name = "h_in",
                   .output = true,
                   .dtype = c.dtype,
                   .sizes = {c.batch, c.seq, c.d},
                   .magnitude = Root(c.n),
                   .tolerance = logits});
  specs.push_back({.name = "h_post",
                   .output = true,
                   .dtype = dtype,
                   .sizes = {c.batch, c.seq, c.n},
                   .tolerance = logits});
  if (v.residual != Residual::kNone) {
    specs.push_back({.name = "h_res",
                     .output = true,
                     .dtype = dtype,
                     .sizes = ResSizes(c),
                     .tolerance = logits});
  }
  if (v.caches) {
    specs.push_back({.name = "inv_rms", .output = true, .dtype = dtype, .sizes = {c.batch, c.seq}});
    specs.push_back({.name = "h_mix",
                     .output = true,
                     .dtype = dtype,
                     .sizes = {c.batch, c.seq, Rows(c)},
                     .tolerance = logits});
    specs.push_back({.name = "h_pre",
                     .output = true,
                     .dtype = dtype,
                     .sizes = {c.batch, c.seq, c.n},
                     .tolerance = logits});
  }
  if (v.gamma) specs.push_back(Gamma(c));
  return specs;
}

Status PrepareForward(const Case& c, std::span<const TensorView> t, Plan* plan,
                      const Context& context) {
  const Variant& v = VariantOf(c);
  std::size_t k = 0;
  MhcPreArgs args;
  args.residual = v.residual;
  args.x = t[k++];
  args.phi = t[k++];
  args.alpha = t[k++];
  args.bias = t[k++];
  args.h_in = t[k++];
  args.h_post = t[k++];
  if (v.residual != Residual::kNone) args.h_res = t[k++];
  if (v.caches) {
    args.inv_rms = t[k++];
    args.h_mix = t[k++];
    args.h_pre = t[k++];
  }
  if (v.gamma) args.gamma = t[k++];
  return Prepare(args, plan, context);
}

TensorSpec Gradient(const Case& c, const char* name, const char* of, const Dims& sizes,
                    double magnitude) {
  // With very few values the RMS term cancels most of the rest: the errors are of the size of what
  // was cancelled.
  const auto k = static_cast<double>(c.n * c.d);
  return {.name = name,
          .output = true,
          .dtype = CoefficientDType(c),
          .sizes = sizes,
          .gradient_of = of,
          .magnitude = magnitude * (1 + c.logit_scale),
          .tolerance = 64 + 2 * Root(c.d) + Root(c.tokens()) + 2000 / k};
}

std::vector<TensorSpec> BackwardTensors(const Case& c) {
  const Variant& v = VariantOf(c);
  const DType dtype = CoefficientDType(c);
  const Dims streams{c.batch, c.seq, c.n, c.d};
  const Dims post{c.batch, c.seq, c.n};
  std::vector<TensorSpec> specs = Parameters(c);
  specs.push_back({.name = "grad_h_in",
                   .dtype = c.dtype,
                   .sizes = {c.batch, c.seq, c.d},
                   .gradient_of = "h_in"});
  specs.push_back({.name = "grad_h_post", .dtype = dtype, .sizes = post, .gradient_of = "h_post"});
  specs.push_back({.name = "inv_rms", .dtype = dtype, .sizes = {c.batch, c.seq}});
  specs.push_back({.name = "h_mix", .dtype = dtype, .sizes = {c.batch, c.seq, Rows(c)}});
  specs.push_back({.name = "h_pre", .dtype = dtype, .sizes = post});
  specs.push_back({.name = "h_post", .dtype = dtype, .sizes = post});
  const double dot = Root(c.d);
  const double sum = dot * Root(c.tokens());
  TensorSpec grad_x = Gradient(c, "grad_x", v.grad_x_post ? "" : "x", streams, 1 + Root(c.n));
  grad_x.dtype = c.dtype;
  specs.push_back(grad_x);
  specs.push_back(Gradient(c, "grad_phi", "phi", {Rows(c), c.n * c.d}, sum));
  specs.push_back(Gradient(c, "grad_alpha", "alpha", {v.residual == Residual::kNone ? 2 : 3},
                           sum * Root(Rows(c))));
  specs.push_back(Gradient(c, "grad_bias", "bias", {Rows(c)}, sum));
  if (v.residual != Residual::kNone) {
    specs.push_back(
        {.name = "grad_h_res", .dtype = dtype, .sizes = ResSizes(c), .gradient_of = "h_res"});
  }
  if (v.gamma) {
    specs.push_back(Gamma(c));
    specs.push_back(Gradient(c, "grad_gamma", "gamma", {c.n, c.d}, sum));
  }
  if (v.grad_x_post) specs.push_back({.name = "grad_x_post", .dtype = c.dtype, .sizes = streams});
  return specs;
}

Status PrepareBackward(const Case& c, std::span<const TensorView> t, Plan* plan,
                       const Context& context) {
  const Variant& v = VariantOf(c);
  std::size_t k = 0;
  MhcPreBackwardArgs args;
  args.residual = v.residual;
  args.x = t[k++];
  args.phi = t[k++];
  args.alpha = t[k++];
  args.grad_h_in = t[k++];
  args.grad_h_post = t[k++];
  args.inv_rms = t[k++];
  args.h_mix = t[k++];
  args.h_pre = t[k++];
  args.h_post = t[k++];
  args.grad_x = t[k++];
  args.grad_phi = t[k++];
  args.grad_alpha = t[k++];
  args.grad_bias = t[k++];
  if (v.residual != Residual::kNone) args.grad_h_res = t[k++];
  if (v.gamma) {
    args.gamma = t[k++];
    args.grad_gamma = t[k++];
  }
  if (v.grad_x_post) args.grad_x_post = t[k++];
  return Prepare(args, plan, context);
}

Cost MakeCost(const Case& c, int x_streams, double flops) {
  Cost cost;
  cost.roof = Cost::Roof::kFma;
  cost.flops = flops * static_cast<double>(Rows(c) * c.n * c.d * c.tokens());
  cost.bytes =
      static_cast<double>(c.tokens() * c.d * x_streams) * static_cast<double>(DTypeSize(c.dtype)) +
      4.0 * static_cast<double>(Rows(c) * c.n * c.d);
  return cost;
}

Cost ForwardCost(const Case& c) { return MakeCost(c, static_cast<int>(c.n) + 1, 2); }

Cost BackwardCost(const Case& c) { return MakeCost(c, 2 * static_cast<int>(c.n) + 1, 4); }

std::vector<Case> BenchCases() {
  return {{.seq = 2048, .n = 4, .d = 4096, .dtype = DType::kBFloat16},
          {.seq = 2048, .n = 4, .d = 7168, .dtype = DType::kBFloat16},
          {.seq = 16, .n = 4, .d = 4096, .dtype = DType::kBFloat16},
          {.seq = 1, .n = 4, .d = 4096, .dtype = DType::kBFloat16}};
}

}  // namespace

OperatorEntry MhcPreEntry() {
  return {.name = "mhc_pre",
          .op = "mhc_pre",
          .pass = "forward",
          .summary = "collapse the residual streams into a sublayer's input; mixing coefficients",
          .variants = Variants(),
          .supports = &Supports,
          .tensors = &ForwardTensors,
          .prepare = &PrepareForward,
          .cost = &ForwardCost,
          .bench_cases = BenchCases()};
}

OperatorEntry MhcPreBackwardEntry() {
  return {.name = "mhc_pre_backward",
          .op = "mhc_pre",
          .pass = "backward",
          .summary = "gradients of mhc_pre",
          .variants = Variants(),
          .supports = &SupportsBackward,
          .tensors = &BackwardTensors,
          .prepare = &PrepareBackward,
          .cost = &BackwardCost,
          .bench_cases = BenchCases()};
}

}  // namespace anabranch
