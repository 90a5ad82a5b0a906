// aclnnMhcHead and aclnnMhcHeadBackward.
#include "aclnnop/aclnn_mhc_head.h"

#include "aclnnop/aclnn_mhc_head_backward.h"
#include "anabranch/mhc_head.h"
#include "src/acl/message.h"
#include "src/acl/op_face.h"

namespace anabranch::acl {
namespace {

Facts HeadFacts(const TensorView& x) {
  const int rank = x.rank();
  return {.op = "mhc_head",
          .n = x.sizes[rank - 2],
          .d = x.sizes[rank - 1],
          .tnd = rank == 3,
          .dtype = x.dtype};
}

}  // namespace
}  // namespace anabranch::acl

using anabranch::Plan;
using anabranch::acl::CallContext;
using anabranch::acl::HeadFacts;
using anabranch::acl::MakeExecutor;
using anabranch::acl::OpCall;
using anabranch::acl::RunExecutor;
using anabranch::acl::Views;

extern "C" {

aclnnStatus aclnnMhcHeadGetWorkspaceSize(const aclTensor* x, const aclTensor* fn,
                                         const aclTensor* base, const aclTensor* scale,
                                         double normEps, double hcEps, aclTensor* y,
                                         aclTensor* invRmsOptional, aclTensor* hMixOptional,
                                         aclTensor* wOptional, uint64_t* workspaceSize,
                                         aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnMhcHead";
  call.tensors = {{"x", x},
                  {"fn", fn},
                  {"base", base},
                  {"scale", scale},
                  {"y", y},
                  {"invRms", invRmsOptional, false},
                  {"hMix", hMixOptional, false},
                  {"w", wOptional, false}};
  call.prepare = [normEps, hcEps](const Views& t, Plan* plan) {
    anabranch::MhcHeadArgs args;
    args.x = t[0];
    args.fn = t[1];
    args.base = t[2];
    args.scale = t[3];
    args.y = t[4];
    args.inv_rms = t[5];
    args.h_mix = t[6];
    args.w = t[7];
    args.options.norm_eps = normEps;
    args.options.pre_eps = hcEps;
    return Prepare(args, plan, CallContext());
  };
  call.layout_tensor = 0;
  call.inner = 2;
  call.facts = [](const Views& t) { return HeadFacts(t[0]); };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcHead");
}

aclnnStatus aclnnMhcHeadBackwardGetWorkspaceSize(const aclTensor* gradY, const aclTensor* x,
                                                 const aclTensor* fn, const aclTensor* scale,
                                                 const aclTensor* invRms, const aclTensor* hMix,
                                                 const aclTensor* w, double hcEps, aclTensor* gradX,
                                                 aclTensor* gradFn, aclTensor* gradBase,
                                                 aclTensor* gradScale, uint64_t* workspaceSize,
                                                 aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnMhcHeadBackward";
  call.tensors = {{"gradY", gradY},
                  {"x", x},
                  {"fn", fn},
                  {"scale", scale},
                  {"invRms", invRms},
                  {"hMix", hMix},
                  {"w", w},
                  {"gradX", gradX},
                  {"gradFn", gradFn},
                  {"gradBase", gradBase},
                  {"gradScale", gradScale}};
  call.prepare = [hcEps](const Views& t, Plan* plan) {
    anabranch::MhcHeadBackwardArgs args;
    args.grad_y = t[0];
    args.x = t[1];
    args.fn = t[2];
    args.scale = t[3];
    args.inv_rms = t[4];
    args.h_mix = t[5];
    args.w = t[6];
    args.grad_x = t[7];
    args.grad_fn = t[8];
    args.grad_base = t[9];
    args.grad_scale = t[10];
    args.options.pre_eps = hcEps;
    return Prepare(args, plan, CallContext());
  };
  call.layout_tensor = 1;
  call.inner = 2;
  call.facts = [](const Views& t) { return HeadFacts(t[1]); };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcHeadBackward");
}

aclnnStatus aclnnMhcHead(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                         aclrtStream stream) {
  return RunExecutor("aclnnMhcHead", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnMhcHeadBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                 aclrtStream stream) {
  return RunExecutor("aclnnMhcHeadBackward", workspace, workspaceSize, executor, stream);
}

}  // extern "C"
