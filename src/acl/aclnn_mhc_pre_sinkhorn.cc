// aclnnMhcPreSinkhorn and aclnnMhcPreSinkhornBackward.
#include "aclnnop/aclnn_mhc_pre_sinkhorn.h"

#include <string>

#include "aclnnop/aclnn_mhc_pre_sinkhorn_backward.h"
#include "anabranch/mhc_pre_sinkhorn.h"
#include "src/acl/message.h"
#include "src/acl/op_face.h"

namespace anabranch::acl {
namespace {

Facts PreSinkhornFacts(const TensorView& x, std::int64_t num_iters) {
  const int rank = x.rank();
  return {.op = "mhc_pre_sinkhorn",
          .n = x.sizes[rank - 2],
          .d = x.sizes[rank - 1],
          .tnd = rank == 3,
          .dtype = x.dtype,
          .num_iters = num_iters};
}

Status CheckMult(const TensorView& x, std::int64_t hc_mult) {
  const std::int64_t n = x.sizes[x.rank() - 2];
  if (n == hc_mult) return Status();
  return Status(
      StatusCode::kInvalidArgument,
      "hcMult is " + std::to_string(hc_mult) + ", expected " + std::to_string(n) + " to match x");
}

}  // namespace
}  // namespace anabranch::acl

using anabranch::Plan;
using anabranch::Status;
using anabranch::acl::CallContext;
using anabranch::acl::CheckMult;
using anabranch::acl::MakeExecutor;
using anabranch::acl::OpCall;
using anabranch::acl::PreSinkhornFacts;
using anabranch::acl::RunExecutor;
using anabranch::acl::Views;

extern "C" {

aclnnStatus aclnnMhcPreSinkhornGetWorkspaceSize(
    const aclTensor* x, const aclTensor* phi, const aclTensor* alpha, const aclTensor* bias,
    int64_t hcMult, int64_t numIters, double hcEps, double normEps, bool needBackward,
    aclTensor* hin, aclTensor* hPost, aclTensor* hRes, aclTensor* hPre, aclTensor* hcBeforeNorm,
    aclTensor* invRms, aclTensor* sumOut, aclTensor* normOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnMhcPreSinkhorn";
  call.tensors = {{"x", x},     {"phi", phi},     {"alpha", alpha}, {"bias", bias},
                  {"hin", hin}, {"hPost", hPost}, {"hRes", hRes}};
  // Without needBackward these five are not looked at.
  const auto cache = [needBackward](aclTensor* tensor) { return needBackward ? tensor : nullptr; };
  call.tensors.push_back({"hPre", cache(hPre), needBackward});
  call.tensors.push_back({"hcBeforeNorm", cache(hcBeforeNorm), needBackward});
  call.tensors.push_back({"invRms", cache(invRms), needBackward});
  call.tensors.push_back({"sumOut", cache(sumOut), needBackward});
  call.tensors.push_back({"normOut", cache(normOut), needBackward});
  call.prepare = [=](const Views& t, Plan* plan) {
    anabranch::MhcPreSinkhornArgs args;
    args.x = t[0];
    args.phi = t[1];
    args.alpha = t[2];
    args.bias = t[3];
    args.h_in = t[4];
    args.h_post = t[5];
    args.h_res = t[6];
    args.h_pre = t[7];
    args.h_mix = t[8];
    args.inv_rms = t[9];
    args.sum_out = t[10];
    args.norm_out = t[11];
    args.options.num_iters = numIters;
    args.options.pre_eps = args.options.sinkhorn_eps = hcEps;
    args.options.norm_eps = normEps;
    if (Status status = Prepare(args, plan, CallContext()); !status.ok()) return status;
    return CheckMult(args.x, hcMult);
  };
  call.layout_tensor = 0;
  call.inner = 2;
  call.facts = [numIters](const Views& t) { return PreSinkhornFacts(t[0], numIters); };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcPreSinkhorn");
}

aclnnStatus aclnnMhcPreSinkhornBackwardGetWorkspaceSize(
    const aclTensor* gradHin, const aclTensor* gradHPost, const aclTensor* gradHRes,
    const aclTensor* x, const aclTensor* phi, const aclTensor* alpha, const aclTensor* bias,
    const aclTensor* hPre, const aclTensor* hcBeforeNorm, const aclTensor* invRms,
    const aclTensor* sumOut, const aclTensor* normOut, double hcEps, const aclTensor* gradX,
    const aclTensor* gradPhi, const aclTensor* gradAlpha, const aclTensor* gradBias,
    uint64_t* workspaceSize, aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnMhcPreSinkhornBackward";
  call.tensors = {{"gradHin", gradHin},
                  {"gradHPost", gradHPost},
                  {"gradHRes", gradHRes},
                  {"x", x},
                  {"phi", phi},
                  {"alpha", alpha},
                  {"bias", bias},
                  {"hPre", hPre},
                  {"hcBeforeNorm", hcBeforeNorm},
                  {"invRms", invRms},
                  {"sumOut", sumOut},
                  {"normOut", normOut},
                  {"gradX", gradX, true, true},
                  {"gradPhi", gradPhi, true, true},
                  {"gradAlpha", gradAlpha, true, true},
                  {"gradBias", gradBias, true, true}};
  call.prepare = [hcEps](const Views& t, Plan* plan) {
    anabranch::MhcPreSinkhornBackwardArgs args;
    args.grad_h_in = t[0];
    args.grad_h_post = t[1];
    args.grad_h_res = t[2];
    args.x = t[3];
    args.phi = t[4];
    args.alpha = t[5];
    args.bias = t[6];
    args.h_pre = t[7];
    args.h_mix = t[8];
    args.inv_rms = t[9];
    args.sum_out = t[10];
    args.norm_out = t[11];
    args.grad_x = t[12];
    args.grad_phi = t[13];
    args.grad_alpha = t[14];
    args.grad_bias = t[15];
    args.options.pre_eps = args.options.sinkhorn_eps = hcEps;
    return Prepare(args, plan, CallContext());
  };
  call.layout_tensor = 3;
  call.inner = 2;
  call.facts = [](const Views& t) { return PreSinkhornFacts(t[3], t[10].sizes[0] / 2); };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcPreSinkhornBackward");
}

aclnnStatus aclnnMhcPreSinkhorn(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                aclrtStream stream) {
  return RunExecutor("aclnnMhcPreSinkhorn", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnMhcPreSinkhornBackward(void* workspace, uint64_t workspaceSize,
                                        aclOpExecutor* executor, aclrtStream stream) {
  return RunExecutor("aclnnMhcPreSinkhornBackward", workspace, workspaceSize, executor, stream);
}

}  // extern "C"
