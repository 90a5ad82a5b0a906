// mhc_post in the operator table.
#include <cmath>

#include "anabranch/mhc_post.h"
#include "src/kernels/stream_mix.h"
#include "src/ops/entries.h"

namespace anabranch {
namespace {

enum Variant { kMixed, kFlat, kNoRes, kNoResWithGradient };

std::vector<const char*> Variants() {
  return {"h_res [*,n,n]", "h_res [*,n*n]", "no h_res", "no h_res, grad_h_res wanted"};
}

bool Supports(const Case& c) { return c.n >= 1 && c.n <= kMaxStreams && c.d >= 1; }

Dims ResSizes(const Case& c) {
  if (c.variant == kFlat) return {c.batch, c.seq, c.n * c.n};
  return {c.batch, c.seq, c.n, c.n};
}

std::vector<TensorSpec> ForwardTensors(const Case& c) {
  const DType coefficient = CoefficientDType(c);
  std::vector<TensorSpec> specs = {
      {.name = "x", .dtype = c.dtype, .sizes = {c.batch, c.seq, c.n, c.d}},
      {.name = "h_out", .dtype = c.dtype, .sizes = {c.batch, c.seq, c.d}},
      {.name = "h_post", .dtype = coefficient, .sizes = {c.batch, c.seq, c.n}, .mean = 1},
      {.name = "y", .output = true, .dtype = c.dtype, .sizes = {c.batch, c.seq, c.n, c.d}}};
  if (c.variant <= kFlat) {
    specs.push_back({.name = "h_res", .dtype = coefficient, .sizes = ResSizes(c)});
  }
  return specs;
}

Status PrepareForward(const Case& c, std::span<const TensorView> t, Plan* plan,
                      const Context& context) {
  MhcPostArgs args;
  args.x = t[0];
  args.h_out = t[1];
  args.h_post = t[2];
  args.y = t[3];
  if (c.variant <= kFlat) args.h_res = t[4];
  return Prepare(args, plan, context);
}

std::vector<TensorSpec> BackwardTensors(const Case& c) {
  const DType coefficient = CoefficientDType(c);
  const Dims streams{c.batch, c.seq, c.n, c.d};
  const double sum = std::sqrt(static_cast<double>(c.d));
  std::vector<TensorSpec> specs = {
      {.name = "grad_output", .dtype = c.dtype, .sizes = streams, .gradient_of = "y"},
      {.name = "x", .dtype = c.dtype, .sizes = streams},
      {.name = "h_out", .dtype = c.dtype, .sizes = {c.batch, c.seq, c.d}},
      {.name = "h_post", .dtype = coefficient, .sizes = {c.batch, c.seq, c.n}, .mean = 1},
      {.name = "grad_x", .output = true, .dtype = c.dtype, .sizes = streams, .gradient_of = "x"},
      {.name = "grad_h_out",
       .output = true,
       .dtype = c.dtype,
       .sizes = {c.batch, c.seq, c.d},
       .gradient_of = "h_out"},
      {.name = "grad_h_post",
       .output = true,
       .dtype = coefficient,
       .sizes = {c.batch, c.seq, c.n},
       .gradient_of = "h_post",
       .magnitude = sum,
       .tolerance = 16 + sum}};
  if (c.variant <= kFlat) {
    specs.push_back({.name = "h_res", .dtype = coefficient, .sizes = ResSizes(c)});
  }
  if (c.variant != kNoRes) {
    specs.push_back({.name = "grad_h_res",
                     .output = true,
                     .dtype = coefficient,
                     .sizes = ResSizes(c),
                     .gradient_of = c.variant <= kFlat ? "h_res" : "",
                     .magnitude = sum,
                     .tolerance = 16 + sum});
  }
  return specs;
}

Status PrepareBackward(const Case& c, std::span<const TensorView> t, Plan* plan,
                       const Context& context) {
  MhcPostBackwardArgs args;
  args.grad_output = t[0];
  args.x = t[1];
  args.h_out = t[2];
  args.h_post = t[3];
  args.grad_x = t[4];
  args.grad_h_out = t[5];
  args.grad_h_post = t[6];
  if (c.variant <= kFlat) args.h_res = t[7];
  if (c.variant != kNoRes) args.grad_h_res = t.back();
  return Prepare(args, plan, context);
}

Cost MakeCost(const Case& c, int reads, int writes, double flops) {
  Cost cost;
  cost.reads = reads;
  cost.writes = writes;
  cost.stream_bytes = (static_cast<double>(c.tokens()) * static_cast<double>(c.d)) *
                      static_cast<double>(DTypeSize(c.dtype));
  cost.bytes = cost.stream_bytes * (reads + writes);
  cost.flops = flops * (static_cast<double>(c.tokens()) * static_cast<double>(c.d));
  return cost;
}

Cost ForwardCost(const Case& c) {
  const int n = static_cast<int>(c.n);
  return MakeCost(c, n + 1, n, 2.0 * n * (n + 1));
}

Cost BackwardCost(const Case& c) {
  const int n = static_cast<int>(c.n);
  return MakeCost(c, 2 * n + 1, n + 1, 4.0 * n * (n + 1));
}

std::vector<Case> BenchCases() {
  return {{.seq = 4096, .n = 4, .d = 4096, .dtype = DType::kBFloat16},
          {.seq = 4096, .n = 4, .d = 7168, .dtype = DType::kBFloat16},
          {.seq = 1, .n = 4, .d = 4096, .dtype = DType::kBFloat16}};
}

}  // namespace

OperatorEntry MhcPostEntry() {
  return {.name = "mhc_post",
          .op = "mhc_post",
          .pass = "forward",
          .summary = "write a sublayer's output to all residual streams and mix them",
          .variants = Variants(),
          .supports = &Supports,
          .tensors = &ForwardTensors,
          .prepare = &PrepareForward,
          .cost = &ForwardCost,
          .bench_cases = BenchCases()};
}

OperatorEntry MhcPostBackwardEntry() {
  return {.name = "mhc_post_backward",
          .op = "mhc_post",
          .pass = "backward",
          .summary = "gradients of mhc_post",
          .variants = Variants(),
          .supports = &Supports,
          .tensors = &BackwardTensors,
          .prepare = &PrepareBackward,
          .cost = &BackwardCost,
          .bench_cases = BenchCases()};
}

}  // namespace anabranch
