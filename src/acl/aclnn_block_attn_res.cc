// aclnnBlockAttnRes and aclnnBlockAttnResBackward.
#include "aclnnop/aclnn_block_attn_res.h"

#include <cstddef>

#include "aclnnop/aclnn_block_attn_res_backward.h"
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

aclnnStatus aclnnBlockAttnResGetWorkspaceSize(
    const aclTensorList* blocks, const aclTensor* projWeight, const aclTensor* partialBlockOptional,
    const aclTensor* rmsnormGammaOptional, double scale, double rmsnormEps, bool enableRmsnorm,
    aclTensor* h, aclTensor* rmsOptional, aclTensor* alphaOptional, uint64_t* workspaceSize,
    aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnBlockAttnRes";
  call.tensors = {{"projWeight", projWeight},
                  {"partialBlockOptional", partialBlockOptional, false},
                  {"rmsnormGammaOptional", rmsnormGammaOptional, false},
                  {"h", h},
                  {"rmsOptional", rmsOptional, false},
                  {"alphaOptional", alphaOptional, false}};
  call.lists = {{"blocks", blocks}};
  call.prepare = [scale, rmsnormEps, enableRmsnorm](const Views& t, Plan* plan) {
    anabranch::BlockAttnResArgs args;
    args.scale = scale;
    args.rmsnorm_eps = rmsnormEps;
    args.enable_rmsnorm = enableRmsnorm;
    args.proj_weight = t[0];
    args.partial_block = t[1];
    args.rmsnorm_gamma = t[2];
    args.h = t[3];
    args.rms_cache = t[4];
    args.alpha_cache = t[5];
    args.blocks.assign(t.begin() + 6, t.end());
    return Prepare(args, plan, CallContext());
  };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnBlockAttnRes");
}

aclnnStatus aclnnBlockAttnRes(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                              aclrtStream stream) {
  return RunExecutor("aclnnBlockAttnRes", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnBlockAttnResBackwardGetWorkspaceSize(
    const aclTensor* gradH, const aclTensorList* blocks, const aclTensor* projWeight,
    const aclTensor* alpha, const aclTensor* partialBlockOptional,
    const aclTensor* rmsnormGammaOptional, const aclTensor* rmsOptional, double scale,
    double rmsnormEps, bool enableRmsnorm, const aclTensorList* gradBlocks,
    aclTensor* gradPartialBlock, aclTensor* gradProjWeight, aclTensor* gradRmsnormGamma,
    uint64_t* workspaceSize, aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnBlockAttnResBackward";
  call.tensors = {
      {"gradH", gradH},
      {"projWeight", projWeight},
      {"alpha", alpha},
      {"partialBlockOptional", partialBlockOptional, false},
      {"rmsnormGammaOptional", rmsnormGammaOptional, false},
      {"rmsOptional", rmsOptional, false},
      {"gradPartialBlock", gradPartialBlock, partialBlockOptional != nullptr},
      {"gradProjWeight", gradProjWeight},
      {"gradRmsnormGamma", gradRmsnormGamma, rmsnormGammaOptional != nullptr && enableRmsnorm}};
  call.lists = {{.name = "blocks", .list = blocks, .tensors_before = 1},
                {.name = "gradBlocks", .list = gradBlocks, .output = true, .tensors_before = 6}};
  call.prepare = [scale, rmsnormEps, enableRmsnorm, count = ListSize(blocks),
                  has_gamma = rmsnormGammaOptional != nullptr,
                  has_partial = partialBlockOptional != nullptr](const Views& t, Plan* plan) {
    anabranch::BlockAttnResBackwardArgs args;
    args.scale = scale;
    args.rmsnorm_eps = rmsnormEps;
    args.enable_rmsnorm = enableRmsnorm;
    args.grad_h = t[0];
    args.proj_weight = t[1];
    args.alpha_cache = t[2];
    args.partial_block = t[3];
    args.rmsnorm_gamma = t[4];
    args.rms_cache = t[5];
    if (has_partial) args.grad_partial_block = t[6];
    args.grad_proj_weight = t[7];
    if (has_gamma) args.grad_rmsnorm_gamma = t[8];
    const auto first = t.begin() + 9;
    const auto grads = first + static_cast<std::ptrdiff_t>(count);
    args.blocks.assign(first, grads);
    args.grad_blocks.assign(grads, t.end());
    return Prepare(args, plan, CallContext());
  };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnBlockAttnResBackward");
}

aclnnStatus aclnnBlockAttnResBackward(void* workspace, uint64_t workspaceSize,
                                      aclOpExecutor* executor, aclrtStream stream) {
  return RunExecutor("aclnnBlockAttnResBackward", workspace, workspaceSize, executor, stream);
}

}  // extern "C"
