// aclnnAttnResPrepare, aclnnAttnResMerge and their backwards.
#include <cstddef>

#include "aclnnop/aclnn_attn_res_merge.h"
#include "aclnnop/aclnn_attn_res_merge_backward.h"
#include "aclnnop/aclnn_attn_res_prepare.h"
#include "aclnnop/aclnn_attn_res_prepare_backward.h"
#include "anabranch/attn_res.h"
#include "src/acl/message.h"
#include "src/acl/op_face.h"
#include "src/acl/tensor.h"

using anabranch::Plan;
using anabranch::acl::CallContext;
using anabranch::acl::ListSize;
using anabranch::acl::MakeExecutor;
using anabranch::acl::OpCall;
using anabranch::acl::RunExecutor;
using anabranch::acl::Views;

extern "C" {

aclnnStatus aclnnAttnResPrepareGetWorkspaceSize(const aclTensorList* blocksOptional,
                                                const aclTensor* queries,
                                                const aclTensor* rmsnormGammaOptional, double scale,
                                                double rmsnormEps, bool enableRmsnorm, aclTensor* o,
                                                aclTensor* m, aclTensor* l, uint64_t* workspaceSize,
                                                aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnAttnResPrepare";
  call.tensors = {{"queries", queries},
                  {"rmsnormGammaOptional", rmsnormGammaOptional, false},
                  {"o", o},
                  {"m", m},
                  {"l", l}};
  call.lists = {{"blocksOptional", blocksOptional, false}};
  call.prepare = [scale, rmsnormEps, enableRmsnorm](const Views& t, Plan* plan) {
    anabranch::AttnResPrepareArgs args;
    args.scale = scale;
    args.rmsnorm_eps = rmsnormEps;
    args.enable_rmsnorm = enableRmsnorm;
    args.queries = t[0];
    args.rmsnorm_gamma = t[1];
    args.o = t[2];
    args.m = t[3];
    args.l = t[4];
    args.blocks.assign(t.begin() + 5, t.end());
    return Prepare(args, plan, CallContext());
  };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnAttnResPrepare");
}

aclnnStatus aclnnAttnResPrepare(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                aclrtStream stream) {
  return RunExecutor("aclnnAttnResPrepare", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnAttnResPrepareBackwardGetWorkspaceSize(
    const aclTensor* gradO, const aclTensor* gradM, const aclTensor* gradL,
    const aclTensorList* blocksOptional, const aclTensor* queries,
    const aclTensor* rmsnormGammaOptional, double scale, double rmsnormEps, bool enableRmsnorm,
    const aclTensorList* gradBlocksOptional, aclTensor* gradQueries, aclTensor* gradRmsnormGamma,
    uint64_t* workspaceSize, aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnAttnResPrepareBackward";
  call.tensors = {
      {"gradO", gradO},
      {"gradM", gradM},
      {"gradL", gradL},
      {"queries", queries},
      {"rmsnormGammaOptional", rmsnormGammaOptional, false},
      {"gradQueries", gradQueries},
      {"gradRmsnormGamma", gradRmsnormGamma, rmsnormGammaOptional != nullptr && enableRmsnorm}};
  call.lists = {
      {.name = "blocksOptional", .list = blocksOptional, .required = false, .tensors_before = 3},
      {.name = "gradBlocksOptional",
       .list = gradBlocksOptional,
       .required = false,
       .output = true,
       .tensors_before = 5}};
  call.prepare = [scale, rmsnormEps, enableRmsnorm, count = ListSize(blocksOptional),
                  has_gamma = rmsnormGammaOptional != nullptr](const Views& t, Plan* plan) {
    anabranch::AttnResPrepareBackwardArgs args;
    args.scale = scale;
    args.rmsnorm_eps = rmsnormEps;
    args.enable_rmsnorm = enableRmsnorm;
    args.grad_o = t[0];
    args.grad_m = t[1];
    args.grad_l = t[2];
    args.queries = t[3];
    args.rmsnorm_gamma = t[4];
    args.grad_queries = t[5];
    if (has_gamma) args.grad_rmsnorm_gamma = t[6];
    const auto first = t.begin() + 7;
    const auto grads = first + static_cast<std::ptrdiff_t>(count);
    args.blocks.assign(first, grads);
    args.grad_blocks.assign(grads, t.end());
    return Prepare(args, plan, CallContext());
  };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnAttnResPrepareBackward");
}

aclnnStatus aclnnAttnResPrepareBackward(void* workspace, uint64_t workspaceSize,
                                        aclOpExecutor* executor, aclrtStream stream) {
  return RunExecutor("aclnnAttnResPrepareBackward", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnAttnResMergeGetWorkspaceSize(
    const aclTensor* o, const aclTensor* m, const aclTensor* l, const aclTensor* v,
    const aclTensor* query, const aclTensor* rmsnormGammaOptional, double scale, double rmsnormEps,
    bool enableRmsnorm, aclTensor* h, uint64_t* workspaceSize, aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnAttnResMerge";
  call.tensors = {{"o", o}, {"m", m},         {"l", l},
                  {"v", v}, {"query", query}, {"rmsnormGammaOptional", rmsnormGammaOptional, false},
                  {"h", h}};
  call.prepare = [scale, rmsnormEps, enableRmsnorm](const Views& t, Plan* plan) {
    anabranch::AttnResMergeArgs args;
    args.scale = scale;
    args.rmsnorm_eps = rmsnormEps;
    args.enable_rmsnorm = enableRmsnorm;
    args.o = t[0];
    args.m = t[1];
    args.l = t[2];
    args.v = t[3];
    args.query = t[4];
    args.rmsnorm_gamma = t[5];
    args.h = t[6];
    return Prepare(args, plan, CallContext());
  };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnAttnResMerge");
}

aclnnStatus aclnnAttnResMerge(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                              aclrtStream stream) {
  return RunExecutor("aclnnAttnResMerge", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnAttnResMergeBackwardGetWorkspaceSize(
    const aclTensor* gradH, const aclTensor* o, const aclTensor* m, const aclTensor* l,
    const aclTensor* v, const aclTensor* query, const aclTensor* rmsnormGammaOptional, double scale,
    double rmsnormEps, bool enableRmsnorm, aclTensor* gradO, aclTensor* gradM, aclTensor* gradL,
    aclTensor* gradV, aclTensor* gradQuery, aclTensor* gradRmsnormGamma, uint64_t* workspaceSize,
    aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnAttnResMergeBackward";
  call.tensors = {
      {"gradH", gradH},
      {"o", o},
      {"m", m},
      {"l", l},
      {"v", v},
      {"query", query},
      {"rmsnormGammaOptional", rmsnormGammaOptional, false},
      {"gradO", gradO},
      {"gradM", gradM},
      {"gradL", gradL},
      {"gradV", gradV},
      {"gradQuery", gradQuery},
      {"gradRmsnormGamma", gradRmsnormGamma, rmsnormGammaOptional != nullptr && enableRmsnorm}};
  call.prepare = [scale, rmsnormEps, enableRmsnorm, has_gamma = rmsnormGammaOptional != nullptr](
                     const Views& t, Plan* plan) {
    anabranch::AttnResMergeBackwardArgs args;
    args.scale = scale;
    args.rmsnorm_eps = rmsnormEps;
    args.enable_rmsnorm = enableRmsnorm;
    args.grad_h = t[0];
    args.o = t[1];
    args.m = t[2];
    args.l = t[3];
    args.v = t[4];
    args.query = t[5];
    args.rmsnorm_gamma = t[6];
    args.grad_o = t[7];
    args.grad_m = t[8];
    args.grad_l = t[9];
    args.grad_v = t[10];
    args.grad_query = t[11];
    if (has_gamma) args.grad_rmsnorm_gamma = t[12];
    return Prepare(args, plan, CallContext());
  };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnAttnResMergeBackward");
}

aclnnStatus aclnnAttnResMergeBackward(void* workspace, uint64_t workspaceSize,
                                      aclOpExecutor* executor, aclrtStream stream) {
  return RunExecutor("aclnnAttnResMergeBackward", workspace, workspaceSize, executor, stream);
}

}  // extern "C"
