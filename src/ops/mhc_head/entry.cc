// mhc_head in the operator table.
#include <algorithm>
#include <cmath>

#include "anabranch/mhc_head.h"
#include "src/ops/entries.h"
#include "src/ops/mhc_spec.h"

namespace anabranch {
namespace {

enum Variant { kCaches, kNoCaches };

std::vector<const char*> Variants() { return {"caches", "no caches"}; }

bool Supports(const Case& c) { return c.n >= 1 && c.n <= specs::kMaxPreStreams && c.d >= 1; }

bool SupportsBackward(const Case& c) { return Supports(c) && c.variant == kCaches; }

double Root(std::int64_t count) {
  return std::sqrt(static_cast<double>(std::max<std::int64_t>(count, 1)));
}

std::vector<TensorSpec> Parameters(const Case& c) {
  const DType dtype = CoefficientDType(c);
  return {{.name = "x", .dtype = c.dtype, .sizes = {c.batch, c.seq, c.n, c.d}},
          {.name = "fn",
           .dtype = dtype,
           .sizes = {c.n, c.n * c.d},
           .scale = c.logit_scale / Root(c.n * c.d)},
          {.name = "base", .dtype = dtype, .sizes = {c.n}, .scale = 0.5},
          {.name = "scale", .dtype = dtype, .sizes = {1}, .mean = 1, .scale = 0.3}};
}

void AddCaches(const Case& c, bool output, std::vector<TensorSpec>* specs) {
  const DType dtype = CoefficientDType(c);
  const double tolerance = (16 + Root(c.n * c.d)) * c.logit_scale;
  const auto add = [&](const char* name, const Dims& sizes) {
    specs->push_back(
        {.name = name, .output = output, .dtype = dtype, .sizes = sizes, .tolerance = tolerance});
  };
  add("inv_rms", {c.batch, c.seq});
  add("h_mix", {c.batch, c.seq, c.n});
  add("w", {c.batch, c.seq, c.n});
}

std::vector<TensorSpec> ForwardTensors(const Case& c) {
  std::vector<TensorSpec> specs = Parameters(c);
  specs.push_back({.name = "y",
                   .output = true,
                   .dtype = c.dtype,
                   .sizes = {c.batch, c.seq, c.d},
                   .magnitude = Root(c.n),
                   .tolerance = (16 + Root(c.n * c.d)) * c.logit_scale});
  if (c.variant == kCaches) AddCaches(c, true, &specs);
  return specs;
}

Status PrepareForward(const Case& c, std::span<const TensorView> t, Plan* plan,
                      const Context& context) {
  MhcHeadArgs args;
  args.x = t[0];
  args.fn = t[1];
  args.base = t[2];
  args.scale = t[3];
  args.y = t[4];
  if (c.variant == kCaches) {
    args.inv_rms = t[5];
    args.h_mix = t[6];
    args.w = t[7];
  }
  return Prepare(args, plan, context);
}

std::vector<TensorSpec> BackwardTensors(const Case& c) {
  const DType dtype = CoefficientDType(c);
  const auto gradient = [&](const char* name, const char* of, DType type, const Dims& sizes,
                            double magnitude) {
    // With very few values the RMS term cancels most of the rest: the errors are of the size of
    // what was cancelled.
    return TensorSpec{
        .name = name,
        .output = true,
        .dtype = type,
        .sizes = sizes,
        .gradient_of = of,
        .magnitude = magnitude * (1 + c.logit_scale),
        .tolerance = 64 + 2 * Root(c.d) + Root(c.tokens()) + 2000 / static_cast<double>(c.n * c.d)};
  };
  const double sum = Root(c.d) * Root(c.tokens());
  std::vector<TensorSpec> specs = Parameters(c);
  specs.erase(specs.begin() + 2);  // base
  specs.push_back(
      {.name = "grad_y", .dtype = c.dtype, .sizes = {c.batch, c.seq, c.d}, .gradient_of = "y"});
  specs.push_back(gradient("grad_x", "x", c.dtype, {c.batch, c.seq, c.n, c.d}, 1 + Root(c.n)));
  specs.push_back(gradient("grad_fn", "fn", dtype, {c.n, c.n * c.d}, sum));
  specs.push_back(gradient("grad_base", "base", dtype, {c.n}, sum));
  specs.push_back(gradient("grad_scale", "scale", dtype, {1}, sum * Root(c.n)));
  AddCaches(c, false, &specs);
  return specs;
}

Status PrepareBackward(const Case& /*c*/, std::span<const TensorView> t, Plan* plan,
                       const Context& context) {
  MhcHeadBackwardArgs args;
  args.x = t[0];
  args.fn = t[1];
  args.scale = t[2];
  args.grad_y = t[3];
  args.grad_x = t[4];
  args.grad_fn = t[5];
  args.grad_base = t[6];
  args.grad_scale = t[7];
  args.inv_rms = t[8];
  args.h_mix = t[9];
  args.w = t[10];
  return Prepare(args, plan, context);
}

// x is read from memory once; the projection of n rows costs less than that.
Cost MakeCost(const Case& c, int reads, int writes, double flops) {
  Cost cost;
  cost.reads = reads;
  cost.writes = writes;
  cost.stream_bytes =
      static_cast<double>(c.tokens() * c.d) * static_cast<double>(DTypeSize(c.dtype));
  cost.bytes = cost.stream_bytes * (reads + writes);
  cost.flops = flops * static_cast<double>(c.n * c.n * c.d * c.tokens());
  return cost;
}

Cost ForwardCost(const Case& c) { return MakeCost(c, static_cast<int>(c.n), 1, 2); }

Cost BackwardCost(const Case& c) {
  return MakeCost(c, static_cast<int>(c.n) + 1, static_cast<int>(c.n), 4);
}

std::vector<Case> BenchCases() {
  return {{.seq = 2048, .n = 4, .d = 4096, .dtype = DType::kBFloat16},
          {.seq = 1, .n = 4, .d = 4096, .dtype = DType::kBFloat16}};
}

}  // namespace

OperatorEntry MhcHeadEntry() {
  return {.name = "mhc_head",
          .op = "mhc_head",
          .pass = "forward",
          .summary = "collapse the residual streams at the end of the network",
          .variants = Variants(),
          .supports = &Supports,
          .tensors = &ForwardTensors,
          .prepare = &PrepareForward,
          .cost = &ForwardCost,
          .bench_cases = BenchCases()};
}

OperatorEntry MhcHeadBackwardEntry() {
  return {.name = "mhc_head_backward",
          .op = "mhc_head",
          .pass = "backward",
          .summary = "gradients of mhc_head",
          .variants = Variants(),
          .supports = &SupportsBackward,
          .tensors = &BackwardTensors,
          .prepare = &PrepareBackward,
          .cost = &BackwardCost,
          .bench_cases = BenchCases()};
}

}  // namespace anabranch
