// The C++ argument structs of every operator: Infer and Prepare with spoilt tensors and attributes,
// and Run where the views are backed by memory. Besides what the sanitizers see: a refusal names
// the operator, Infer accepts what Prepare accepts, and the order of the tasks changes no bit.
#include <cstring>
#include <vector>

#include "anabranch/attn_res.h"
#include "anabranch/mhc.h"
#include "tests/fuzz/call.h"

namespace anabranch::fuzz {
namespace {

constexpr std::int64_t kMostIterations = 8;  // of a call that runs
constexpr std::size_t kMostWorkspace = std::size_t{1} << 22;

struct Attributes {
  MhcOptions options;
  Residual residual = Residual::kMatrix;
  std::int64_t n = 0;
  bool without_eps = false;
  double scale = 1;
  double rmsnorm_eps = 1e-6;
  bool enable_rmsnorm = true;
};

Attributes PickAttributes(Input* in, const RandomCall& call) {
  Attributes a;
  MhcOptions& o = a.options;
  const std::string variant = call.variant();
  o.num_iters = call.shape().num_iters;
  if (variant.find("permutation") == 0) a.residual = Residual::kPermutation;
  if (variant.find("no residual") == 0) a.residual = Residual::kNone;
  if (variant == "logits [*,n*n]") a.n = call.shape().n;
  a.enable_rmsnorm = variant.find("no norm") != 0;
  if (!in->Chance(64)) return a;
  if (in->Chance(64)) o.num_iters = in->Wide();
  o.norm_eps = in->Real(o.norm_eps);
  o.pre_eps = in->Real(o.pre_eps);
  o.sinkhorn_eps = in->Real(o.sinkhorn_eps);
  o.post_multiplier = in->Real(o.post_multiplier);
  o.clamp_low = in->Real(o.clamp_low);
  o.clamp_high = in->Real(in->Chance(64) ? 5 : o.clamp_high);
  if (in->Chance(32)) o.op_impl_mode = in->Wide();
  if (in->Chance(32)) a.residual = static_cast<Residual>(in->Below(5));
  if (in->Chance(32)) a.n = in->Wide();
  a.without_eps = in->Chance(64);
  a.scale = in->Real(a.scale);
  a.rmsnorm_eps = in->Real(a.rmsnorm_eps);
  a.enable_rmsnorm = !in->Chance(64);
  return a;
}

// The answers of one call.
struct Answer {
  Status infer;
  Status prepare;
};

// Fields have the names of the tensors in the operator table.
#define TAKE(field) args.field = call(#field)

template <class Args, class InferFunction>
Answer Finish(Args* args, InferFunction infer, Plan* plan, const Context& context) {
  Answer answer;
  answer.prepare = Prepare(*args, plan, context);
  answer.infer = infer(args);
  return answer;
}

Answer Post(const RandomCall& call, const Attributes&, Plan* plan, const Context& context) {
  MhcPostArgs args;
  TAKE(x), TAKE(h_res), TAKE(h_out), TAKE(h_post), TAKE(y);
  return Finish(&args, InferMhcPost, plan, context);
}

Answer PostBackward(const RandomCall& call, const Attributes&, Plan* plan, const Context& context) {
  MhcPostBackwardArgs args;
  TAKE(grad_output), TAKE(x), TAKE(h_res), TAKE(h_out), TAKE(h_post);
  TAKE(grad_x), TAKE(grad_h_res), TAKE(grad_h_out), TAKE(grad_h_post);
  return Finish(&args, InferMhcPostBackward, plan, context);
}

Answer Pre(const RandomCall& call, const Attributes& a, Plan* plan, const Context& context) {
  MhcPreArgs args;
  TAKE(x), TAKE(phi), TAKE(alpha), TAKE(bias), TAKE(gamma);
  TAKE(h_in), TAKE(h_post), TAKE(h_res), TAKE(inv_rms), TAKE(h_mix), TAKE(h_pre);
  args.options = a.options;
  args.residual = a.residual;
  return Finish(&args, InferMhcPre, plan, context);
}

Answer PreBackward(const RandomCall& call, const Attributes& a, Plan* plan,
                   const Context& context) {
  MhcPreBackwardArgs args;
  TAKE(x), TAKE(phi), TAKE(alpha), TAKE(grad_h_in), TAKE(grad_h_post), TAKE(grad_h_res);
  TAKE(inv_rms), TAKE(h_mix), TAKE(h_pre), TAKE(h_post), TAKE(gamma), TAKE(grad_x_post);
  TAKE(grad_x), TAKE(grad_phi), TAKE(grad_alpha), TAKE(grad_bias), TAKE(grad_gamma);
  args.options = a.options;
  args.residual = a.residual;
  return Finish(&args, InferMhcPreBackward, plan, context);
}

Answer PreSinkhorn(const RandomCall& call, const Attributes& a, Plan* plan,
                   const Context& context) {
  MhcPreSinkhornArgs args;
  TAKE(x), TAKE(phi), TAKE(alpha), TAKE(bias), TAKE(h_in), TAKE(h_post), TAKE(h_res);
  TAKE(h_pre), TAKE(h_mix), TAKE(inv_rms), TAKE(sum_out), TAKE(norm_out);
  args.options = a.options;
  return Finish(&args, InferMhcPreSinkhorn, plan, context);
}

Answer PreSinkhornBackward(const RandomCall& call, const Attributes& a, Plan* plan,
                           const Context& context) {
  MhcPreSinkhornBackwardArgs args;
  TAKE(grad_h_in), TAKE(grad_h_post), TAKE(grad_h_res), TAKE(x), TAKE(phi), TAKE(alpha);
  TAKE(bias), TAKE(h_pre), TAKE(h_mix), TAKE(inv_rms), TAKE(sum_out), TAKE(norm_out);
  TAKE(grad_x), TAKE(grad_phi), TAKE(grad_alpha), TAKE(grad_bias);
  args.options = a.options;
  return Finish(&args, InferMhcPreSinkhornBackward, plan, context);
}

Answer Sinkhorn(const RandomCall& call, const Attributes& a, Plan* plan, const Context& context) {
  MhcSinkhornArgs args;
  TAKE(logits), TAKE(h_res), TAKE(sum_out), TAKE(norm_out);
  args.options = a.options;
  args.n = a.n;
  args.softmax_cache_without_eps = a.without_eps;
  return Finish(&args, InferMhcSinkhorn, plan, context);
}

Answer SinkhornBackward(const RandomCall& call, const Attributes& a, Plan* plan,
                        const Context& context) {
  MhcSinkhornBackwardArgs args;
  TAKE(grad_h_res), TAKE(logits), TAKE(sum_out), TAKE(norm_out), TAKE(grad_logits);
  args.options = a.options;
  args.n = a.n;
  args.softmax_cache_without_eps = a.without_eps;
  return Finish(&args, InferMhcSinkhornBackward, plan, context);
}

Answer Permutation(const RandomCall& call, const Attributes&, Plan* plan, const Context& context) {
  MhcPermutationArgs args;
  TAKE(logits), TAKE(h_res);
  return Finish(&args, InferMhcPermutation, plan, context);
}

Answer PermutationBackward(const RandomCall& call, const Attributes&, Plan* plan,
                           const Context& context) {
  MhcPermutationBackwardArgs args;
  TAKE(grad_h_res), TAKE(logits), TAKE(grad_logits);
  return Finish(&args, InferMhcPermutationBackward, plan, context);
}

Answer Head(const RandomCall& call, const Attributes& a, Plan* plan, const Context& context) {
  MhcHeadArgs args;
  TAKE(x), TAKE(fn), TAKE(base), TAKE(scale), TAKE(y), TAKE(inv_rms), TAKE(h_mix), TAKE(w);
  args.options = a.options;
  return Finish(&args, InferMhcHead, plan, context);
}

Answer HeadBackward(const RandomCall& call, const Attributes& a, Plan* plan,
                    const Context& context) {
  MhcHeadBackwardArgs args;
  TAKE(grad_y), TAKE(x), TAKE(fn), TAKE(scale), TAKE(inv_rms), TAKE(h_mix), TAKE(w);
  TAKE(grad_x), TAKE(grad_fn), TAKE(grad_base), TAKE(grad_scale);
  args.options = a.options;
  return Finish(&args, InferMhcHeadBackward, plan, context);
}

template <class Args>
void SetNorm(const Attributes& a, Args* args) {
  args->scale = a.scale;
  args->rmsnorm_eps = a.rmsnorm_eps;
  args->enable_rmsnorm = a.enable_rmsnorm;
}

Answer AttnRes(const RandomCall& call, const Attributes& a, Plan* plan, const Context& context) {
  BlockAttnResArgs args;
  args.blocks = call.List("blocks");
  TAKE(partial_block), TAKE(proj_weight), TAKE(rmsnorm_gamma);
  TAKE(h), TAKE(rms_cache), TAKE(alpha_cache);
  SetNorm(a, &args);
  return Finish(&args, InferBlockAttnRes, plan, context);
}

Answer AttnResBackward(const RandomCall& call, const Attributes& a, Plan* plan,
                       const Context& context) {
  BlockAttnResBackwardArgs args;
  args.blocks = call.List("blocks");
  args.grad_blocks = call.List("grad_blocks");
  TAKE(grad_h), TAKE(partial_block), TAKE(proj_weight), TAKE(rmsnorm_gamma), TAKE(alpha_cache);
  TAKE(rms_cache), TAKE(grad_partial_block), TAKE(grad_proj_weight), TAKE(grad_rmsnorm_gamma);
  SetNorm(a, &args);
  return Finish(&args, InferBlockAttnResBackward, plan, context);
}

Answer AttnPrepare(const RandomCall& call, const Attributes& a, Plan* plan,
                   const Context& context) {
  AttnResPrepareArgs args;
  args.blocks = call.List("blocks");
  TAKE(queries), TAKE(rmsnorm_gamma), TAKE(o), TAKE(m), TAKE(l);
  SetNorm(a, &args);
  return Finish(&args, InferAttnResPrepare, plan, context);
}

Answer AttnPrepareBackward(const RandomCall& call, const Attributes& a, Plan* plan,
                           const Context& context) {
  AttnResPrepareBackwardArgs args;
  args.blocks = call.List("blocks");
  args.grad_blocks = call.List("grad_blocks");
  TAKE(grad_o), TAKE(grad_m), TAKE(grad_l), TAKE(queries), TAKE(rmsnorm_gamma);
  TAKE(grad_queries), TAKE(grad_rmsnorm_gamma);
  SetNorm(a, &args);
  return Finish(&args, InferAttnResPrepareBackward, plan, context);
}

Answer AttnMerge(const RandomCall& call, const Attributes& a, Plan* plan, const Context& context) {
  AttnResMergeArgs args;
  TAKE(o), TAKE(m), TAKE(l), TAKE(v), TAKE(query), TAKE(rmsnorm_gamma), TAKE(h);
  SetNorm(a, &args);
  return Finish(&args, InferAttnResMerge, plan, context);
}

Answer AttnMergeBackward(const RandomCall& call, const Attributes& a, Plan* plan,
                         const Context& context) {
  AttnResMergeBackwardArgs args;
  TAKE(grad_h), TAKE(o), TAKE(m), TAKE(l), TAKE(v), TAKE(query), TAKE(rmsnorm_gamma);
  TAKE(grad_o), TAKE(grad_m), TAKE(grad_l), TAKE(grad_v), TAKE(grad_query);
  TAKE(grad_rmsnorm_gamma);
  SetNorm(a, &args);
  return Finish(&args, InferAttnResMergeBackward, plan, context);
}

#undef TAKE

struct Operation {
  const char* name;
  Answer (*call)(const RandomCall&, const Attributes&, Plan*, const Context&);
};
constexpr Operation kOperations[] = {
    {"mhc_post", Post},
    {"mhc_post_backward", PostBackward},
    {"mhc_pre", Pre},
    {"mhc_pre_backward", PreBackward},
    {"mhc_pre_sinkhorn", PreSinkhorn},
    {"mhc_pre_sinkhorn_backward", PreSinkhornBackward},
    {"mhc_sinkhorn", Sinkhorn},
    {"mhc_sinkhorn_backward", SinkhornBackward},
    {"mhc_permutation", Permutation},
    {"mhc_permutation_backward", PermutationBackward},
    {"mhc_head", Head},
    {"mhc_head_backward", HeadBackward},
    {"block_attn_res", AttnRes},
    {"block_attn_res_backward", AttnResBackward},
    {"attn_res_prepare", AttnPrepare},
    {"attn_res_prepare_backward", AttnPrepareBackward},
    {"attn_res_merge", AttnMerge},
    {"attn_res_merge_backward", AttnMergeBackward},
};

const Operation& OperationOf(const OperatorEntry& entry) {
  for (const Operation& operation : kOperations) {
    if (std::strcmp(operation.name, entry.name) == 0) return operation;
  }
  Broken(std::string("no fuzzing of ") + entry.name + ", expected a line in tests/fuzz/args.cc");
}

// A pool that runs its tasks from the last to the first.
void Backwards(void* /*pool*/, std::int64_t count, Context::Task task, void* state) {
  for (std::int64_t i = count; i-- > 0;) task(state, i);
}

void RunPlan(const Plan& plan, const Context& context) {
  // The workspace is as long as promised: a sanitizer sees a byte more.
  const std::size_t bytes = plan.workspace_bytes();
  void* workspace = bytes == 0 ? nullptr : ::operator new(bytes, std::align_val_t(64));
  const Status status = plan.Run(workspace, bytes, context);
  ++calls;
  ::operator delete(workspace, std::align_val_t(64));
  if (!status.ok()) Broken("Run: " + status.message());
}

void CheckRefusal(const char* op, const Status& status) {
  if (status.message().rfind(std::string(op) + ": ", 0) != 0) {
    Broken("message without the operator's name: " + status.message());
  }
}

// What holds for every call, whether it may run or not.
void CheckAnswer(const RandomCall& call, const Answer& answer, const Plan& plan) {
  calls += 2;
  const char* op = call.entry().name;
  if (!answer.infer.ok()) CheckRefusal(op, answer.infer);
  if (!answer.prepare.ok()) return CheckRefusal(op, answer.prepare);
  if (!answer.infer.ok()) Broken("Prepare accepts what Infer refuses: " + answer.infer.message());
  if (plan.Describe().empty()) Broken("a plan without a description");
}

void OneCall(Input* in) {
  const OperatorEntry& entry = PickOperator(in);
  RandomCall call(in, entry, false);
  const Attributes attributes = PickAttributes(in, call);
  const int variations = in->Below(in->drawn() ? 256 : 48);
  for (int k = 0; k < variations && !in->empty(); ++k) {
    call.Vary(in);
    Plan plan;
    CheckAnswer(call, OperationOf(entry).call(call, attributes, &plan, Context::Default()), plan);
    call.Undo();
  }
  Context context;
  context.set_threads(1);
  const bool twice = in->Chance(128);
  static const std::vector<Target> targets = SupportedTargets();
  if (!in->Chance(128)) context.set_target(targets[in->Byte() % targets.size()]);
  Plan plan;
  const Answer answer = OperationOf(entry).call(call, attributes, &plan, context);
  CheckAnswer(call, answer, plan);
  if (!answer.prepare.ok() || !call.real() || plan.workspace_bytes() > kMostWorkspace) return;
  if (attributes.options.num_iters > kMostIterations) return;
  if (!twice) return RunPlan(plan, context);
  const std::string before = call.Contents();
  RunPlan(plan, context);
  call.ForgetPayloads();
  const std::string first = call.Contents();
  call.Restore(before);
  context.set_parallel_for(&Backwards, nullptr, 4);
  Plan again;
  if (!OperationOf(entry).call(call, attributes, &again, context).prepare.ok()) {
    Broken("Prepare refuses with four threads what it accepted with one");
  }
  RunPlan(again, context);
  call.ForgetPayloads();
  if (call.Contents() != first) {
    Broken(std::string(entry.name) + ": bits depend on the tasks' order");
  }
}

}  // namespace
}  // namespace anabranch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anabranch::fuzz;  // NOLINT(google-build-using-namespace)
  CountCalls("args");
  Input in(data, size);
  int most = 4;
  do OneCall(&in);
  while (!in.empty() && --most > 0);
  Input drawn = Input::Drawn(data, size);
  for (int round = Input::Rounds(data, size); round > 0; --round) OneCall(&drawn);
  return 0;
}
