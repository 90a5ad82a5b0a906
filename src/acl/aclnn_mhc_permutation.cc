// aclnnMhcPermutation and aclnnMhcPermutationBackward.
#include "aclnnop/aclnn_mhc_permutation.h"

#include "aclnnop/aclnn_mhc_permutation_backward.h"
#include "anabranch/mhc_permutation.h"
#include "src/acl/message.h"
#include "src/acl/op_face.h"

using anabranch::Plan;
using anabranch::acl::CallContext;
using anabranch::acl::MakeExecutor;
using anabranch::acl::OpCall;
using anabranch::acl::RunExecutor;
using anabranch::acl::Views;

extern "C" {

aclnnStatus aclnnMhcPermutationGetWorkspaceSize(const aclTensor* logits, aclTensor* hRes,
                                                uint64_t* workspaceSize,
                                                aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnMhcPermutation";
  call.tensors = {{"logits", logits}, {"hRes", hRes}};
  call.prepare = [](const Views& t, Plan* plan) {
    anabranch::MhcPermutationArgs args;
    args.logits = t[0];
    args.h_res = t[1];
    return Prepare(args, plan, CallContext());
  };
  call.layout_tensor = 0;
  call.inner = 1;
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcPermutation");
}

aclnnStatus aclnnMhcPermutation(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                aclrtStream stream) {
  return RunExecutor("aclnnMhcPermutation", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnMhcPermutationBackwardGetWorkspaceSize(const aclTensor* gradHRes,
                                                        const aclTensor* logits,
                                                        aclTensor* gradLogits,
                                                        uint64_t* workspaceSize,
                                                        aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnMhcPermutationBackward";
  call.tensors = {{"gradHRes", gradHRes}, {"logits", logits}, {"gradLogits", gradLogits}};
  call.prepare = [](const Views& t, Plan* plan) {
    anabranch::MhcPermutationBackwardArgs args;
    args.grad_h_res = t[0];
    args.logits = t[1];
    args.grad_logits = t[2];
    return Prepare(args, plan, CallContext());
  };
  call.layout_tensor = 1;
  call.inner = 1;
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcPermutationBackward");
}

aclnnStatus aclnnMhcPermutationBackward(void* workspace, uint64_t workspaceSize,
                                        aclOpExecutor* executor, aclrtStream stream) {
  return RunExecutor("aclnnMhcPermutationBackward", workspace, workspaceSize, executor, stream);
}

}  // extern "C"
