// mhc_post_pre in the operator table.
#include <algorithm>
#include <cmath>

#include "anabranch/mhc_post_pre.h"
#include "src/core/mhc_check.h"
#include "src/ops/entries.h"

namespace anabranch {
namespace {

enum Variant { kPlain, kCaches, kFlatIterates, kNoRes };

std::vector<const char*> Variants() {
  return {"no caches", "h_pre, h_mix, inv_rms", "h_res [*,n*n], all caches", "no h_res"};
}

bool Supports(const Case& c) {
  return c.n >= 1 && c.n <= kMaxPreStreams && c.d >= 1 && c.num_iters >= 1;
}

std::int64_t Rows(const Case& c) { return c.n * c.n + 2 * c.n; }

double Root(std::int64_t count) {
  return std::sqrt(static_cast<double>(std::max<std::int64_t>(count, 1)));
}

Dims ResSizes(const Case& c) {
  if (c.variant == kFlatIterates) return {c.batch, c.seq, c.n * c.n};
  return {c.batch, c.seq, c.n, c.n};
}

TensorSpec Output(const Case& c, const char* name, const Dims& sizes, double growth) {
  // y's own rounding is in what is projected: the reference projects what it has not rounded.
  const double unit = c.dtype == DType::kBFloat16 ? 65536 : c.dtype == DType::kFloat16 ? 8192 : 1;
  return {.name = name,
          .output = true,
          .dtype = CoefficientDType(c),
          .sizes = sizes,
          .tolerance = growth * (16 + Root(c.n * c.d) + unit) * c.logit_scale,
          .expandable = false};
}

std::vector<TensorSpec> Tensors(const Case& c) {
  const DType dtype = CoefficientDType(c);
  const Dims streams{c.batch, c.seq, c.n, c.d};
  const Dims hidden{c.batch, c.seq, c.d};
  const double scale = c.logit_scale / Root(c.n * c.d);
  std::vector<TensorSpec> specs = {
      {.name = "x", .dtype = c.dtype, .sizes = streams, .scale = 0.7},
      {.name = "h_out", .dtype = c.dtype, .sizes = hidden, .scale = 0.7},
      {.name = "h_post", .dtype = dtype, .sizes = {c.batch, c.seq, c.n}, .mean = 0.5, .scale = 0.3},
      {.name = "phi", .dtype = dtype, .sizes = {Rows(c), c.n * c.d}, .scale = scale},
      {.name = "alpha", .dtype = dtype, .sizes = {3}, .mean = 1, .scale = 0.3},
      {.name = "bias", .dtype = dtype, .sizes = {Rows(c)}, .scale = 0.5},
      {.name = "y", .output = true, .dtype = c.dtype, .sizes = streams}};
  TensorSpec h_in = Output(c, "h_in", hidden, 2);
  h_in.dtype = c.dtype;
  h_in.magnitude = Root(c.n);
  specs.push_back(h_in);
  specs.push_back(Output(c, "next_h_post", {c.batch, c.seq, c.n}, 2));
  specs.push_back(Output(c, "next_h_res", ResSizes(c), 8));
  if (c.variant != kNoRes) {
    specs.push_back({.name = "h_res", .dtype = dtype, .sizes = ResSizes(c), .scale = 0.5});
  }
  if (c.variant == kCaches || c.variant == kFlatIterates) {
    specs.push_back(Output(c, "h_pre", {c.batch, c.seq, c.n}, 2));
    specs.push_back(Output(c, "h_mix", {c.batch, c.seq, Rows(c)}, 8));
    specs.push_back(Output(c, "inv_rms", {c.batch, c.seq}, 8));
  }
  if (c.variant == kFlatIterates) {
    specs.push_back(Output(c, "sum_out", {2 * c.num_iters, c.tokens(), c.n}, 8));
    specs.push_back(Output(c, "norm_out", {2 * c.num_iters, c.tokens(), c.n, c.n}, 8));
  }
  return specs;
}

Status PrepareCase(const Case& c, std::span<const TensorView> t, Plan* plan,
                   const Context& context) {
  std::size_t k = 0;
  MhcPostPreArgs args;
  args.options.num_iters = c.num_iters;
  args.x = t[k++];
  args.h_out = t[k++];
  args.h_post = t[k++];
  args.phi = t[k++];
  args.alpha = t[k++];
  args.bias = t[k++];
  args.y = t[k++];
  args.h_in = t[k++];
  args.next_h_post = t[k++];
  args.next_h_res = t[k++];
  if (c.variant != kNoRes) args.h_res = t[k++];
  if (c.variant == kCaches || c.variant == kFlatIterates) {
    args.h_pre = t[k++];
    args.h_mix = t[k++];
    args.inv_rms = t[k++];
  }
  if (c.variant == kFlatIterates) {
    args.sum_out = t[k++];
    args.norm_out = t[k++];
  }
  return Prepare(args, plan, context);
}

Cost CostOf(const Case& c) {
  Cost cost;
  cost.roof = Cost::Roof::kFma;
  cost.flops = 2.0 * static_cast<double>((Rows(c) + c.n + 1) * c.n * c.d * c.tokens());
  cost.bytes = static_cast<double>(c.tokens() * c.d * (2 * c.n + 2)) *
                   static_cast<double>(DTypeSize(c.dtype)) +
               4.0 * static_cast<double>(Rows(c) * c.n * c.d);
  return cost;
}

}  // namespace

OperatorEntry MhcPostPreEntry() {
  return {.name = "mhc_post_pre",
          .op = "mhc_post_pre",
          .pass = "forward",
          .summary = "mhc_post of a sublayer and mhc_pre_sinkhorn of the next in one pass",
          .variants = Variants(),
          .supports = &Supports,
          .tensors = &Tensors,
          .prepare = &PrepareCase,
          .cost = &CostOf,
          .bench_cases = {{.seq = 2048, .n = 4, .d = 4096, .dtype = DType::kBFloat16},
                          {.seq = 2048, .n = 4, .d = 7168, .dtype = DType::kBFloat16},
                          {.seq = 1, .n = 4, .d = 4096, .dtype = DType::kBFloat16}}};
}

}  // namespace anabranch
