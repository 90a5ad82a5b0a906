// Phase 1 and phase 2 of every aclnn operator with structured random arguments: spoilt shapes,
// strides, dtypes and attributes; null, dead and wrong-type handles; storages that are described
// as smaller or larger than they are; workspaces that are too small, null or misaligned. Where a
// description is a lie about memory only phase 1 is called, which must not touch the memory.
#include <cstdlib>

#include "acl/acl.h"
#include "aclnnop/aclnn_ops_transformer.h"
#include "tests/fuzz/aclnn_tensors.h"

namespace anabranch::fuzz {
namespace {

constexpr std::uint64_t kMostWorkspace = 1 << 22;
constexpr std::int64_t kMostIterations = 8;

struct Attributes {
  double eps = 1e-6, norm_eps = 1e-6, scale = 1;
  std::int64_t iters = 1, mult = 4, mode = 0;
  bool backward = true, norm = true, v2 = false;
};

Attributes PickAttributes(Input* in, const RandomCall& call) {
  Attributes a;
  a.iters = call.shape().num_iters;
  a.mult = call.shape().n;
  a.backward = call.variant().find("no cache") == std::string::npos;
  a.norm = call.variant().find("no norm") != 0;
  a.v2 = in->Chance(64);
  if (!in->Chance(48)) return a;
  a.eps = in->Real(a.eps);
  a.norm_eps = in->Real(a.norm_eps);
  a.scale = in->Real(a.scale);
  if (in->Chance(64)) a.iters = in->Wide();
  if (in->Chance(32)) a.mult = in->Wide();
  if (in->Chance(32)) a.mode = in->Wide();
  a.backward = in->Chance(128);
  a.norm = in->Chance(128);
  return a;
}

struct Phase1 {
  std::uint64_t* workspace;
  aclOpExecutor** executor;
};
using PhaseTwo = aclnnStatus (*)(void*, std::uint64_t, aclOpExecutor*, aclrtStream);

// An operator's phase 1, and its phase 2.
struct Operation {
  const char* name;
  aclnnStatus (*first)(Tensors&, const Attributes&, Phase1);
  PhaseTwo second;
};

aclnnStatus Pre(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnMhcPreGetWorkspaceSize(t("x"), t("phi"), t("alpha"), t("bias"), t("gamma"),
                                     a.norm_eps, a.eps, t("h_in"), t("h_post"), t("h_res"),
                                     t("inv_rms"), t("h_mix"), t("h_pre"), p.workspace, p.executor);
}

aclnnStatus PreV2(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnMhcPreV2GetWorkspaceSize(
      t("x"), t("phi"), t("alpha"), t("bias"), t("gamma"), a.norm_eps, a.eps, a.mode, t("h_in"),
      t("h_post"), t("h_res"), t("inv_rms"), t("h_mix"), t("h_pre"), p.workspace, p.executor);
}

aclnnStatus PreBackward(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnMhcPreBackwardGetWorkspaceSize(
      t("x"), t("phi"), t("alpha"), t("grad_h_in"), t("grad_h_post"), t("grad_h_res"), t("inv_rms"),
      t("h_mix"), t("h_pre"), t("h_post"), t("gamma"), t("grad_x_post"), static_cast<float>(a.eps),
      t("grad_x"), t("grad_phi"), t("grad_alpha"), t("grad_bias"), t("grad_gamma"), p.workspace,
      p.executor);
}

aclnnStatus PreBackwardV2(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnMhcPreBackwardV2GetWorkspaceSize(
      t("x"), t("phi"), t("alpha"), t("grad_h_in"), t("grad_h_post"), t("grad_h_res"), t("inv_rms"),
      t("h_mix"), t("h_pre"), t("h_post"), t("gamma"), t("grad_x_post"), static_cast<float>(a.eps),
      a.mode, t("grad_x"), t("grad_phi"), t("grad_alpha"), t("grad_bias"), t("grad_gamma"),
      p.workspace, p.executor);
}

aclnnStatus PreSinkhorn(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnMhcPreSinkhornGetWorkspaceSize(
      t("x"), t("phi"), t("alpha"), t("bias"), a.mult, a.iters, a.eps, a.norm_eps, a.backward,
      t("h_in"), t("h_post"), t("h_res"), t("h_pre"), t("h_mix"), t("inv_rms"), t("sum_out"),
      t("norm_out"), p.workspace, p.executor);
}

aclnnStatus PreSinkhornBackward(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnMhcPreSinkhornBackwardGetWorkspaceSize(
      t("grad_h_in"), t("grad_h_post"), t("grad_h_res"), t("x"), t("phi"), t("alpha"), t("bias"),
      t("h_pre"), t("h_mix"), t("inv_rms"), t("sum_out"), t("norm_out"), a.eps, t("grad_x"),
      t("grad_phi"), t("grad_alpha"), t("grad_bias"), p.workspace, p.executor);
}

aclnnStatus Sinkhorn(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnMhcSinkhornGetWorkspaceSize(t("logits"), static_cast<float>(a.eps), a.iters,
                                          t("h_res"), t("norm_out"), t("sum_out"), p.workspace,
                                          p.executor);
}

aclnnStatus SinkhornBackward(Tensors& t, const Attributes&, Phase1 p) {
  return aclnnMhcSinkhornBackwardGetWorkspaceSize(t("grad_h_res"), t("norm_out"), t("sum_out"),
                                                  t("grad_logits"), p.workspace, p.executor);
}

aclnnStatus Post(Tensors& t, const Attributes&, Phase1 p) {
  return aclnnMhcPostGetWorkspaceSize(t("x"), t("h_res"), t("h_out"), t("h_post"), t("y"),
                                      p.workspace, p.executor);
}

aclnnStatus PostBackward(Tensors& t, const Attributes&, Phase1 p) {
  return aclnnMhcPostBackwardGetWorkspaceSize(
      t("grad_output"), t("x"), t("h_res"), t("h_out"), t("h_post"), t("grad_x"), t("grad_h_res"),
      t("grad_h_out"), t("grad_h_post"), p.workspace, p.executor);
}

aclnnStatus Head(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnMhcHeadGetWorkspaceSize(t("x"), t("fn"), t("base"), t("scale"), a.norm_eps, a.eps,
                                      t("y"), t("inv_rms"), t("h_mix"), t("w"), p.workspace,
                                      p.executor);
}

aclnnStatus HeadBackward(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnMhcHeadBackwardGetWorkspaceSize(
      t("grad_y"), t("x"), t("fn"), t("scale"), t("inv_rms"), t("h_mix"), t("w"), a.eps,
      t("grad_x"), t("grad_fn"), t("grad_base"), t("grad_scale"), p.workspace, p.executor);
}

aclnnStatus Permutation(Tensors& t, const Attributes&, Phase1 p) {
  return aclnnMhcPermutationGetWorkspaceSize(t("logits"), t("h_res"), p.workspace, p.executor);
}

aclnnStatus PermutationBackward(Tensors& t, const Attributes&, Phase1 p) {
  return aclnnMhcPermutationBackwardGetWorkspaceSize(t("grad_h_res"), t("logits"), t("grad_logits"),
                                                     p.workspace, p.executor);
}

aclnnStatus AttnRes(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnBlockAttnResGetWorkspaceSize(
      t.List("blocks"), t("proj_weight"), t("partial_block"), t("rmsnorm_gamma"), a.scale,
      a.norm_eps, a.norm, t("h"), t("rms_cache"), t("alpha_cache"), p.workspace, p.executor);
}

aclnnStatus AttnResBackward(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnBlockAttnResBackwardGetWorkspaceSize(
      t("grad_h"), t.List("blocks"), t("proj_weight"), t("alpha_cache"), t("partial_block"),
      t("rmsnorm_gamma"), t("rms_cache"), a.scale, a.norm_eps, a.norm, t.List("grad_blocks"),
      t("grad_partial_block"), t("grad_proj_weight"), t("grad_rmsnorm_gamma"), p.workspace,
      p.executor);
}

aclnnStatus AttnPrepare(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnAttnResPrepareGetWorkspaceSize(t.List("blocks"), t("queries"), t("rmsnorm_gamma"),
                                             a.scale, a.norm_eps, a.norm, t("o"), t("m"), t("l"),
                                             p.workspace, p.executor);
}

aclnnStatus AttnPrepareBackward(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnAttnResPrepareBackwardGetWorkspaceSize(
      t("grad_o"), t("grad_m"), t("grad_l"), t.List("blocks"), t("queries"), t("rmsnorm_gamma"),
      a.scale, a.norm_eps, a.norm, t.List("grad_blocks"), t("grad_queries"),
      t("grad_rmsnorm_gamma"), p.workspace, p.executor);
}

aclnnStatus AttnMerge(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnAttnResMergeGetWorkspaceSize(t("o"), t("m"), t("l"), t("v"), t("query"),
                                           t("rmsnorm_gamma"), a.scale, a.norm_eps, a.norm, t("h"),
                                           p.workspace, p.executor);
}

aclnnStatus AttnMergeBackward(Tensors& t, const Attributes& a, Phase1 p) {
  return aclnnAttnResMergeBackwardGetWorkspaceSize(
      t("grad_h"), t("o"), t("m"), t("l"), t("v"), t("query"), t("rmsnorm_gamma"), a.scale,
      a.norm_eps, a.norm, t("grad_o"), t("grad_m"), t("grad_l"), t("grad_v"), t("grad_query"),
      t("grad_rmsnorm_gamma"), p.workspace, p.executor);
}

constexpr Operation kOperations[] = {
    {"mhc_pre", Pre, aclnnMhcPre},
    {"mhc_pre", PreV2, aclnnMhcPreV2},
    {"mhc_pre_backward", PreBackward, aclnnMhcPreBackward},
    {"mhc_pre_backward", PreBackwardV2, aclnnMhcPreBackwardV2},
    {"mhc_pre_sinkhorn", PreSinkhorn, aclnnMhcPreSinkhorn},
    {"mhc_pre_sinkhorn_backward", PreSinkhornBackward, aclnnMhcPreSinkhornBackward},
    {"mhc_sinkhorn", Sinkhorn, aclnnMhcSinkhorn},
    {"mhc_sinkhorn_backward", SinkhornBackward, aclnnMhcSinkhornBackward},
    {"mhc_post", Post, aclnnMhcPost},
    {"mhc_post_backward", PostBackward, aclnnMhcPostBackward},
    {"mhc_head", Head, aclnnMhcHead},
    {"mhc_head_backward", HeadBackward, aclnnMhcHeadBackward},
    {"mhc_permutation", Permutation, aclnnMhcPermutation},
    {"mhc_permutation_backward", PermutationBackward, aclnnMhcPermutationBackward},
    {"block_attn_res", AttnRes, aclnnBlockAttnRes},
    {"block_attn_res_backward", AttnResBackward, aclnnBlockAttnResBackward},
    {"attn_res_prepare", AttnPrepare, aclnnAttnResPrepare},
    {"attn_res_prepare_backward", AttnPrepareBackward, aclnnAttnResPrepareBackward},
    {"attn_res_merge", AttnMerge, aclnnAttnResMerge},
    {"attn_res_merge_backward", AttnMergeBackward, aclnnAttnResMergeBackward},
};

// A refusal leaves a message that names the call.
void CheckMessage(const char* what) {
  const std::string message = aclGetRecentErrMsg();
  if (message.find("acl") == std::string::npos) {
    Broken(std::string(what) + " failed without a message that names the call: " + message);
  }
}

struct Workspace {
  explicit Workspace(std::size_t size)
      : memory(size == 0 ? nullptr : ::operator new(size, std::align_val_t(64))) {}
  ~Workspace() { ::operator delete(memory, std::align_val_t(64)); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* memory;
};

void Run(Input* in, const Operation& operation, std::uint64_t size, aclOpExecutor* executor) {
  const Workspace workspace(size);
  if (in->Chance(16) && size > 0) {
    calls += 3;
    const bool refused =
        operation.second(workspace.memory, size - 1, executor, nullptr) != 0 &&
        operation.second(nullptr, size, executor, nullptr) != 0 &&
        operation.second(static_cast<char*>(workspace.memory) + 4, size, executor, nullptr) != 0;
    if (!refused) Broken(std::string(operation.name) + " takes a wrong workspace");
  }
  const bool repeatable = in->Chance(16);
  if (repeatable) aclSetAclOpExecutorRepeatable(executor);
  calls += 2;
  if (operation.second(workspace.memory, size, executor, nullptr) != 0) {
    // Only what phase 1 does not look at: addresses. The executor is still there.
    const std::string message = aclGetRecentErrMsg();
    const bool of_memory = message.find("overlap") != std::string::npos ||
                           message.find("address") != std::string::npos;
    if (!of_memory) Broken("phase 2 refuses: " + message);
    if (aclDestroyAclOpExecutor(executor) != 0) Broken("a refused executor cannot be destroyed");
    return;
  }
  if (repeatable && operation.second(workspace.memory, size, executor, nullptr) != 0) {
    Broken(std::string("phase 2 refuses a repeatable executor: ") + aclGetRecentErrMsg());
  }
  if (aclrtSynchronizeStream(nullptr) != 0) Broken(std::string("run: ") + aclGetRecentErrMsg());
  if (repeatable) return;
  ++calls;
  if (operation.second(workspace.memory, size, executor, nullptr) == 0) {
    Broken("phase 2 takes a consumed executor");
  }
}

void OneCall(Input* in) {
  const Operation& operation = in->Pick(kOperations);
  RandomCall call(in, *FindOperator(operation.name), true);
  const Attributes attributes = PickAttributes(in, call);
  Tensors tensors(in, &call);
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  const bool honest = tensors.honest();
  const int variations = in->Below(in->drawn() ? 256 : 48);
  for (int k = 0; k < variations && !in->empty(); ++k) {
    tensors.Exchange(call.Vary(in));
    ++calls;
    if (operation.first(tensors, attributes, {&size, &executor}) == 0) {
      aclDestroyAclOpExecutor(executor);
    } else {
      CheckMessage(operation.name);
    }
    tensors.Undo();
    call.Undo();
  }
  executor = reinterpret_cast<aclOpExecutor*>(std::uintptr_t{0x1234560});
  aclGetRecentErrMsg();
  ++calls;
  const aclnnStatus status = operation.first(
      tensors, attributes, {in->Chance(2) ? nullptr : &size, in->Chance(2) ? nullptr : &executor});
  if (status != 0) return CheckMessage(operation.name);
  if (honest && size <= kMostWorkspace && attributes.iters <= kMostIterations) {
    Run(in, operation, size, executor);
  } else if (in->Chance(64)) {
    ++calls;  // the executor of another operator
    if (kOperations[(&operation - kOperations + 1) % std::size(kOperations)].second(
            nullptr, 0, executor, nullptr) == 0) {
      Broken("phase 2 takes an executor of another operator");
    }
  }
  aclDestroyAclOpExecutor(executor);
}

}  // namespace
}  // namespace anabranch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anabranch::fuzz;  // NOLINT(google-build-using-namespace)
  CountCalls("aclnn");
  static const bool ready = aclrtSetDevice(0) == 0;
  if (!ready) Broken("aclrtSetDevice");
  static const char* const kProfiles[] = {"native", "native", "native", "native",
                                          "native", "a2",     "950",    "unknown"};
  Input in(data, size);
  setenv("ANABRANCH_SOC", in.Pick(kProfiles), 1);
  int most = 4;
  do OneCall(&in);
  while (!in.empty() && --most > 0);
  Input drawn = Input::Drawn(data, size);
  for (int round = Input::Rounds(data, size); round > 0; --round) OneCall(&drawn);
  aclGetRecentErrMsg();
  return 0;
}
