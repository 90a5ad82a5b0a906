// attn_res_prepare and attn_res_merge in the operator table. Case.n is the number of queries S.
#include <cmath>

#include "anabranch/attn_res_two_phase.h"
#include "anabranch/block_attn_res.h"
#include "src/core/caught.h"
#include "src/ops/attn_res/entry_reader.h"
#include "src/ops/entries.h"

namespace anabranch {
namespace {

enum class Gamma { kNone, kShared, kEach };

// What a variant means.
struct Form {
  const char* name;
  Gamma gamma;
  bool norm;
  bool narrow;  // parameters in the activations' dtype
  bool blocks = true;
};
constexpr Form kPrepareForms[] = {
    {"norm, gamma [D]", Gamma::kShared, true, false},
    {"norm, gamma [S,D]", Gamma::kEach, true, false},
    {"norm, no gamma", Gamma::kNone, true, false},
    {"norm, gamma [D], parameters as activations", Gamma::kShared, true, true},
    {"no norm", Gamma::kNone, false, false},
    {"no blocks", Gamma::kShared, true, false, false},
};
constexpr Form kMergeForms[] = {
    {"norm, gamma", Gamma::kShared, true, false},
    {"norm, no gamma", Gamma::kNone, true, false},
    {"norm, gamma, parameters as activations", Gamma::kShared, true, true},
    {"no norm", Gamma::kNone, false, false},
};

template <std::size_t N>
std::vector<const char*> Names(const Form (&forms)[N]) {
  std::vector<const char*> names;
  for (const Form& form : forms) names.push_back(form.name);
  return names;
}

double RootD(const Case& c) { return std::sqrt(static_cast<double>(c.d)); }

// A score's error is a few units in the last place of its size, and its weight moves as much.
double ScoreTolerance(const Case& c) {
  return 64 + 16 * c.logit_scale + 2 * RootD(c) * c.logit_scale;
}

TensorSpec Gradient(TensorSpec of, double magnitude, double tolerance) {
  of.gradient_of = of.name;
  of.name = "grad_" + of.name;
  of.output = true;
  of.magnitude = magnitude;
  of.tolerance = tolerance;
  return of;
}

// --- prepare

const Form& PrepareForm(const Case& c) { return kPrepareForms[c.variant]; }
std::int64_t Blocks(const Case& c) { return PrepareForm(c).blocks ? c.sources : 0; }

bool PrepareSupports(const Case& c) {
  return c.n >= 1 && c.sources >= 1 && c.sources <= kMaxBlocks && c.d >= 1;
}

std::vector<TensorSpec> BlockSpecs(const Case& c) {
  std::vector<TensorSpec> specs;
  for (std::int64_t i = 0; i < Blocks(c); ++i) {
    specs.push_back({.name = "blocks[" + std::to_string(i) + "]",
                     .dtype = c.dtype,
                     .sizes = {c.batch, c.seq, c.d}});
  }
  return specs;
}

std::vector<TensorSpec> PrepareParams(const Case& c) {
  const Form& form = PrepareForm(c);
  const DType dtype = form.narrow ? c.dtype : CoefficientDType(c);
  std::vector<TensorSpec> specs = {
      {.name = "queries", .dtype = dtype, .sizes = {c.n, c.d}, .scale = c.logit_scale / RootD(c)}};
  if (form.gamma != Gamma::kNone) {
    const Dims sizes = form.gamma == Gamma::kEach ? Dims{c.n, c.d} : Dims{c.d};
    specs.push_back(
        {.name = "rmsnorm_gamma", .dtype = dtype, .sizes = sizes, .mean = 1, .scale = 0.3});
  }
  return specs;
}

std::vector<TensorSpec> PrepareOutputs(const Case& c) {
  const DType dtype = CoefficientDType(c);
  const auto sources = static_cast<double>(c.sources);
  return {{.name = "o",
           .output = true,
           .dtype = dtype,
           .sizes = {c.n, c.batch, c.seq, c.d},
           .magnitude = sources,
           .tolerance = ScoreTolerance(c)},
          {.name = "m",
           .output = true,
           .dtype = dtype,
           .sizes = {c.n, c.batch, c.seq},
           .magnitude = c.logit_scale,
           .tolerance = ScoreTolerance(c)},
          {.name = "l",
           .output = true,
           .dtype = dtype,
           .sizes = {c.n, c.batch, c.seq},
           .magnitude = sources,
           .tolerance = ScoreTolerance(c)}};
}

std::vector<TensorSpec> Join(std::initializer_list<std::vector<TensorSpec>> lists) {
  std::vector<TensorSpec> all;
  for (const std::vector<TensorSpec>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// The gradients that come in for outputs.
std::vector<TensorSpec> Incoming(std::vector<TensorSpec> outputs) {
  for (TensorSpec& spec : outputs) {
    spec.gradient_of = spec.name;
    spec.name = "grad_" + spec.name;
    spec.output = false;
  }
  return outputs;
}

std::vector<TensorSpec> PrepareForwardTensors(const Case& c) {
  return Join({BlockSpecs(c), PrepareParams(c), PrepareOutputs(c)});
}

std::vector<TensorSpec> PrepareBackwardTensors(const Case& c) {
  const auto queries = static_cast<double>(c.n);
  const auto terms = static_cast<double>(c.tokens()) * static_cast<double>(c.sources);
  std::vector<TensorSpec> grads;
  for (const TensorSpec& spec : BlockSpecs(c)) {
    grads.push_back(Gradient(spec, 2 * queries * (1 + c.logit_scale), ScoreTolerance(c)));
  }
  for (const TensorSpec& spec : PrepareParams(c)) {
    grads.push_back(Gradient(spec, RootD(c) * (1 + std::sqrt(terms)),
                             ScoreTolerance(c) + queries + std::sqrt(terms)));
  }
  return Join({BlockSpecs(c), PrepareParams(c), Incoming(PrepareOutputs(c)), grads});
}

template <class Args>
void ReadPrepare(const Case& c, EntryReader* reader, Args* args) {
  args->scale = kEntryScale;
  args->rmsnorm_eps = kEntryEps;
  args->enable_rmsnorm = PrepareForm(c).norm;
  args->blocks = reader->Next(Blocks(c));
  args->queries = reader->Next();
  if (PrepareForm(c).gamma != Gamma::kNone) args->rmsnorm_gamma = reader->Next();
}

Status PreparePrepare(const Case& c, std::span<const TensorView> t, Plan* plan,
                      const Context& context) try {
  AttnResPrepareArgs args;
  EntryReader reader(t);
  ReadPrepare(c, &reader, &args);
  args.o = reader.Next();
  args.m = reader.Next();
  args.l = reader.Next();
  return Prepare(args, plan, context);
} catch (...) {
  return Caught();
}

Status PreparePrepareBackward(const Case& c, std::span<const TensorView> t, Plan* plan,
                              const Context& context) try {
  AttnResPrepareBackwardArgs args;
  EntryReader reader(t);
  ReadPrepare(c, &reader, &args);
  args.grad_o = reader.Next();
  args.grad_m = reader.Next();
  args.grad_l = reader.Next();
  args.grad_blocks = reader.Next(Blocks(c));
  args.grad_queries = reader.Next();
  if (PrepareForm(c).gamma != Gamma::kNone) args.grad_rmsnorm_gamma = reader.Next();
  return Prepare(args, plan, context);
} catch (...) {
  return Caught();
}

// `half` and `wide` rows of D move a token: activations and FP32.
Cost MakeCost(const Case& c, Cost::Roof roof, std::int64_t half_in, std::int64_t half_out,
              std::int64_t wide_in, std::int64_t wide_out, double flops) {
  Cost cost;
  cost.roof = roof;
  const auto elements = static_cast<double>(c.tokens() * c.d);
  const auto size = static_cast<std::int64_t>(DTypeSize(c.dtype));
  const std::int64_t wide =
      4 / std::min<std::int64_t>(size, 4);  // rows that an FP32 row counts for
  cost.reads = static_cast<int>(half_in + wide * wide_in);
  cost.writes = static_cast<int>(half_out + wide * wide_out);
  cost.stream_bytes = elements * static_cast<double>(size);
  cost.bytes = cost.stream_bytes * (cost.reads + cost.writes);
  cost.flops = flops * elements;
  return cost;
}

Cost PrepareCost(const Case& c) {
  const double flops = 4.0 * static_cast<double>(c.n * c.sources);
  return MakeCost(c, c.n > 2 ? Cost::Roof::kFma : Cost::Roof::kStream, c.sources, 0, 0, c.n, flops);
}

Cost PrepareBackwardCost(const Case& c) {
  const double flops = 10.0 * static_cast<double>(c.n * c.sources);
  return MakeCost(c, c.n > 2 ? Cost::Roof::kFma : Cost::Roof::kStream, c.sources, c.sources, c.n, 0,
                  flops);
}

std::vector<Case> PrepareBenchCases() {
  return {{.seq = 256, .n = 24, .d = 7168, .sources = 8, .dtype = DType::kBFloat16},
          {.seq = 1, .n = 24, .d = 7168, .sources = 8, .dtype = DType::kBFloat16}};
}

// --- merge

const Form& MergeForm(const Case& c) { return kMergeForms[c.variant]; }
bool MergeSupports(const Case& c) { return c.d >= 1; }

std::vector<TensorSpec> MergeInputs(const Case& c) {
  const Form& form = MergeForm(c);
  const DType coefficient = CoefficientDType(c);
  const DType param = form.narrow ? c.dtype : coefficient;
  std::vector<TensorSpec> specs = {
      {.name = "o", .dtype = coefficient, .sizes = {c.batch, c.seq, c.d}, .scale = 2},
      {.name = "m", .dtype = coefficient, .sizes = {c.batch, c.seq}, .scale = c.logit_scale},
      {.name = "l", .dtype = coefficient, .sizes = {c.batch, c.seq}, .mean = 3, .scale = 0.3},
      {.name = "v", .dtype = c.dtype, .sizes = {c.batch, c.seq, c.d}},
      {.name = "query", .dtype = param, .sizes = {c.d}, .scale = c.logit_scale / RootD(c)}};
  if (form.gamma != Gamma::kNone) {
    specs.push_back(
        {.name = "rmsnorm_gamma", .dtype = param, .sizes = {1, c.d}, .mean = 1, .scale = 0.3});
  }
  return specs;
}

std::vector<TensorSpec> MergeForwardTensors(const Case& c) {
  return Join({MergeInputs(c),
               {{.name = "h",
                 .output = true,
                 .dtype = c.dtype,
                 .sizes = {c.batch, c.seq, c.d},
                 .tolerance = ScoreTolerance(c)}}});
}

std::vector<TensorSpec> MergeBackwardTensors(const Case& c) {
  const double root_tokens = std::sqrt(static_cast<double>(c.tokens()));
  std::vector<TensorSpec> grads;
  const std::vector<TensorSpec> inputs = MergeInputs(c);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool param = i >= 4;
    const double magnitude = param ? RootD(c) * (1 + root_tokens) : RootD(c) * (1 + c.logit_scale);
    grads.push_back(Gradient(inputs[i], magnitude, ScoreTolerance(c) + (param ? root_tokens : 0)));
  }
  return Join(
      {inputs,
       {{.name = "grad_h", .dtype = c.dtype, .sizes = {c.batch, c.seq, c.d}, .gradient_of = "h"}},
       grads});
}

template <class Args>
void ReadMerge(const Case& c, EntryReader* reader, Args* args) {
  args->scale = kEntryScale;
  args->rmsnorm_eps = kEntryEps;
  args->enable_rmsnorm = MergeForm(c).norm;
  args->o = reader->Next();
  args->m = reader->Next();
  args->l = reader->Next();
  args->v = reader->Next();
  args->query = reader->Next();
  if (MergeForm(c).gamma != Gamma::kNone) args->rmsnorm_gamma = reader->Next();
}

Status PrepareMerge(const Case& c, std::span<const TensorView> t, Plan* plan,
                    const Context& context) try {
  AttnResMergeArgs args;
  EntryReader reader(t);
  ReadMerge(c, &reader, &args);
  args.h = reader.Next();
  return Prepare(args, plan, context);
} catch (...) {
  return Caught();
}

Status PrepareMergeBackward(const Case& c, std::span<const TensorView> t, Plan* plan,
                            const Context& context) try {
  AttnResMergeBackwardArgs args;
  EntryReader reader(t);
  ReadMerge(c, &reader, &args);
  args.grad_h = reader.Next();
  args.grad_o = reader.Next();
  args.grad_m = reader.Next();
  args.grad_l = reader.Next();
  args.grad_v = reader.Next();
  args.grad_query = reader.Next();
  if (MergeForm(c).gamma != Gamma::kNone) args.grad_rmsnorm_gamma = reader.Next();
  return Prepare(args, plan, context);
} catch (...) {
  return Caught();
}

Cost MergeCost(const Case& c) { return MakeCost(c, Cost::Roof::kStream, 1, 1, 1, 0, 7); }
Cost MergeBackwardCost(const Case& c) { return MakeCost(c, Cost::Roof::kStream, 2, 1, 1, 1, 16); }

std::vector<Case> MergeBenchCases() {
  return {{.seq = 2048, .d = 7168, .dtype = DType::kBFloat16},
          {.seq = 1, .d = 7168, .dtype = DType::kBFloat16}};
}

}  // namespace

OperatorEntry AttnResPrepareEntry() {
  return {.name = "attn_res_prepare",
          .op = "attn_res_prepare",
          .pass = "forward",
          .summary = "attend over the finished blocks for several queries at once",
          .variants = Names(kPrepareForms),
          .supports = &PrepareSupports,
          .tensors = &PrepareForwardTensors,
          .prepare = &PreparePrepare,
          .cost = &PrepareCost,
          .bench_cases = PrepareBenchCases()};
}

OperatorEntry AttnResPrepareBackwardEntry() {
  return {.name = "attn_res_prepare_backward",
          .op = "attn_res_prepare",
          .pass = "backward",
          .summary = "gradients of attn_res_prepare",
          .variants = Names(kPrepareForms),
          .supports = &PrepareSupports,
          .tensors = &PrepareBackwardTensors,
          .prepare = &PreparePrepareBackward,
          .cost = &PrepareBackwardCost,
          .bench_cases = PrepareBenchCases()};
}

OperatorEntry AttnResMergeEntry() {
  return {.name = "attn_res_merge",
          .op = "attn_res_merge",
          .pass = "forward",
          .summary = "add one source to what attn_res_prepare gave",
          .variants = Names(kMergeForms),
          .supports = &MergeSupports,
          .tensors = &MergeForwardTensors,
          .prepare = &PrepareMerge,
          .cost = &MergeCost,
          .bench_cases = MergeBenchCases()};
}

OperatorEntry AttnResMergeBackwardEntry() {
  return {.name = "attn_res_merge_backward",
          .op = "attn_res_merge",
          .pass = "backward",
          .summary = "gradients of attn_res_merge",
          .variants = Names(kMergeForms),
          .supports = &MergeSupports,
          .tensors = &MergeBackwardTensors,
          .prepare = &PrepareMergeBackward,
          .cost = &MergeBackwardCost,
          .bench_cases = MergeBenchCases()};
}

}  // namespace anabranch
