// block_attn_res in the operator table.
#include <cmath>

#include "anabranch/block_attn_res.h"
#include "src/core/caught.h"
#include "src/kernels/attn_residual.h"
#include "src/ops/attn_res/entry_reader.h"
#include "src/ops/entries.h"

namespace anabranch {
namespace {

// What a variant means.
struct Form {
  const char* name;
  bool norm, gamma, partial, rms_cache;
  bool narrow;  // proj_weight and gamma in the activations' dtype
};
constexpr Form kForms[] = {
    {"norm, gamma", true, true, false, true, false},
    {"norm, gamma, partial", true, true, true, true, false},
    {"norm, gamma, no rms cache", true, true, true, false, false},
    {"norm, no gamma, partial", true, false, true, true, false},
    {"norm, gamma, parameters as activations", true, true, true, true, true},
    {"no norm, partial", false, false, true, true, false},
    {"no norm, parameters as activations", false, false, false, false, true},
};

const Form& FormOf(const Case& c) { return kForms[c.variant]; }
std::int64_t Blocks(const Case& c) { return c.sources - (FormOf(c).partial ? 1 : 0); }

std::vector<const char*> Variants() {
  std::vector<const char*> names;
  for (const Form& form : kForms) names.push_back(form.name);
  return names;
}

bool Supports(const Case& c) { return Blocks(c) >= 1 && Blocks(c) <= kMaxBlocks && c.d >= 1; }

Dims Row(const Case& c) { return {c.batch, c.seq, c.d}; }

void AddSources(const Case& c, bool gradients, std::vector<TensorSpec>* specs) {
  for (std::int64_t i = 0; i < c.sources; ++i) {
    const bool partial = FormOf(c).partial && i == Blocks(c);
    const std::string name = partial ? "partial_block" : "blocks[" + std::to_string(i) + "]";
    TensorSpec spec = {.name = name, .dtype = c.dtype, .sizes = Row(c)};
    if (gradients) {
      spec.name = "grad_" + name;
      spec.output = true;
      spec.gradient_of = name;
      spec.magnitude = 2;
      spec.tolerance = 64 + std::sqrt(static_cast<double>(c.d)) * c.logit_scale;
    }
    specs->push_back(spec);
  }
}

// Scores have the standard deviation logit_scale: sum_d gamma_d w_d v_d with v of size 1.
void AddParams(const Case& c, std::vector<TensorSpec>* specs) {
  const DType dtype = FormOf(c).narrow ? c.dtype : CoefficientDType(c);
  const double size = c.logit_scale / std::sqrt(static_cast<double>(c.d));
  specs->push_back({.name = "proj_weight", .dtype = dtype, .sizes = {c.d}, .scale = size});
  if (FormOf(c).gamma) {
    specs->push_back(
        {.name = "rmsnorm_gamma", .dtype = dtype, .sizes = {1, c.d}, .mean = 1, .scale = 0.3});
  }
}

// A score's error is a few units in the last place of its size, and alpha moves as much.
double ScoreTolerance(const Case& c) {
  return 64 + 16 * c.logit_scale + 2 * std::sqrt(static_cast<double>(c.d)) * c.logit_scale;
}

std::vector<TensorSpec> ForwardTensors(const Case& c) {
  std::vector<TensorSpec> specs;
  AddSources(c, false, &specs);
  AddParams(c, &specs);
  specs.push_back({.name = "h",
                   .output = true,
                   .dtype = c.dtype,
                   .sizes = Row(c),
                   .tolerance = ScoreTolerance(c)});
  const DType coefficient = CoefficientDType(c);
  specs.push_back({.name = "alpha_cache",
                   .output = true,
                   .dtype = coefficient,
                   .sizes = {c.batch, c.seq, c.sources},
                   .tolerance = ScoreTolerance(c)});
  if (FormOf(c).rms_cache) {
    specs.push_back({.name = "rms_cache",
                     .output = true,
                     .dtype = coefficient,
                     .sizes = {c.batch, c.seq, c.sources, 1},
                     .tolerance = 16 + std::sqrt(static_cast<double>(c.d))});
  }
  return specs;
}

template <class Args>
void ReadInputs(const Case& c, EntryReader* reader, Args* args) {
  args->scale = kEntryScale;
  args->rmsnorm_eps = kEntryEps;
  args->enable_rmsnorm = FormOf(c).norm;
  args->blocks = reader->Next(Blocks(c));
  if (FormOf(c).partial) args->partial_block = reader->Next();
  args->proj_weight = reader->Next();
  if (FormOf(c).gamma) args->rmsnorm_gamma = reader->Next();
}

Status PrepareForward(const Case& c, std::span<const TensorView> t, Plan* plan,
                      const Context& context) try {
  BlockAttnResArgs args;
  EntryReader reader(t);
  ReadInputs(c, &reader, &args);
  args.h = reader.Next();
  args.alpha_cache = reader.Next();
  if (FormOf(c).rms_cache) args.rms_cache = reader.Next();
  return Prepare(args, plan, context);
} catch (...) {
  return Caught();
}

std::vector<TensorSpec> BackwardTensors(const Case& c) {
  std::vector<TensorSpec> specs;
  const DType coefficient = CoefficientDType(c);
  const auto sources = static_cast<double>(c.sources);
  AddSources(c, false, &specs);
  AddParams(c, &specs);
  const std::size_t params = specs.size();
  specs.push_back({.name = "grad_h", .dtype = c.dtype, .sizes = Row(c), .gradient_of = "h"});
  specs.push_back({.name = "alpha_cache",
                   .dtype = coefficient,
                   .sizes = {c.batch, c.seq, c.sources},
                   .mean = 1 / sources,
                   .scale = 0.2 / sources});
  if (FormOf(c).rms_cache) {
    specs.push_back({.name = "rms_cache",
                     .dtype = coefficient,
                     .sizes = {c.batch, c.seq, c.sources, 1},
                     .mean = 1.2,
                     .scale = 0.05});
  }
  AddSources(c, true, &specs);
  const double root_d = std::sqrt(static_cast<double>(c.d));
  for (std::size_t i = static_cast<std::size_t>(c.sources); i < params; ++i) {
    TensorSpec grad = specs[i];
    grad.gradient_of = grad.name;
    grad.name = "grad_" + grad.name;
    grad.output = true;
    // t is of size sqrt(D), and T * L of them are added.
    grad.magnitude = root_d * std::sqrt(static_cast<double>(c.tokens()) * sources);
    grad.tolerance = 64 + root_d * c.logit_scale + std::sqrt(static_cast<double>(c.tokens()));
    specs.push_back(grad);
  }
  return specs;
}

Status PrepareBackward(const Case& c, std::span<const TensorView> t, Plan* plan,
                       const Context& context) try {
  BlockAttnResBackwardArgs args;
  EntryReader reader(t);
  ReadInputs(c, &reader, &args);
  args.grad_h = reader.Next();
  args.alpha_cache = reader.Next();
  if (FormOf(c).rms_cache) args.rms_cache = reader.Next();
  args.grad_blocks = reader.Next(Blocks(c));
  if (FormOf(c).partial) args.grad_partial_block = reader.Next();
  args.grad_proj_weight = reader.Next();
  if (FormOf(c).gamma) args.grad_rmsnorm_gamma = reader.Next();
  return Prepare(args, plan, context);
} catch (...) {
  return Caught();
}

Cost MakeCost(const Case& c, int reads, int writes, double flops) {
  Cost cost;
  cost.reads = reads;
  cost.writes = writes;
  cost.stream_bytes =
      static_cast<double>(c.tokens() * c.d) * static_cast<double>(DTypeSize(c.dtype));
  cost.bytes = cost.stream_bytes * (reads + writes);
  cost.flops = flops * static_cast<double>(c.tokens() * c.d * c.sources);
  return cost;
}

Cost ForwardCost(const Case& c) { return MakeCost(c, static_cast<int>(c.sources), 1, 6); }

Cost BackwardCost(const Case& c) {
  return MakeCost(c, static_cast<int>(c.sources) + 1, static_cast<int>(c.sources), 11);
}

std::vector<Case> BenchCases() {
  return {{.seq = 2048, .d = 7168, .sources = 9, .dtype = DType::kBFloat16, .variant = 1},
          {.seq = 1024, .d = 2048, .sources = 66, .dtype = DType::kBFloat16, .variant = 1},
          {.seq = 2048, .d = 512, .sources = 128, .dtype = DType::kBFloat16, .variant = 1},
          {.seq = 1, .d = 7168, .sources = 9, .dtype = DType::kBFloat16, .variant = 1}};
}

}  // namespace

OperatorEntry BlockAttnResEntry() {
  return {.name = "block_attn_res",
          .op = "block_attn_res",
          .pass = "forward",
          .summary = "attend over the outputs of earlier blocks",
          .variants = Variants(),
          .supports = &Supports,
          .tensors = &ForwardTensors,
          .prepare = &PrepareForward,
          .cost = &ForwardCost,
          .bench_cases = BenchCases()};
}

OperatorEntry BlockAttnResBackwardEntry() {
  return {.name = "block_attn_res_backward",
          .op = "block_attn_res",
          .pass = "backward",
          .summary = "gradients of block_attn_res",
          .variants = Variants(),
          .supports = &Supports,
          .tensors = &BackwardTensors,
          .prepare = &PrepareBackward,
          .cost = &BackwardCost,
          .bench_cases = BenchCases()};
}

}  // namespace anabranch
