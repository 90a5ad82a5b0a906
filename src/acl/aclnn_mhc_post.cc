// aclnnMhcPost and aclnnMhcPostBackward.
#include "aclnnop/aclnn_mhc_post.h"

#include "aclnnop/aclnn_mhc_post_backward.h"
#include "anabranch/mhc_post.h"
#include "src/acl/message.h"
#include "src/acl/op_face.h"

namespace anabranch::acl {
namespace {

Facts PostFacts(const TensorView& x, const TensorView& h_res) {
  const int rank = x.rank();
  return {.op = "mhc_post",
          .n = x.sizes[rank - 2],
          .d = x.sizes[rank - 1],
          .tnd = rank == 3,
          .dtype = x.dtype,
          .has_h_res = h_res.defined()};
}

}  // namespace
}  // namespace anabranch::acl

using anabranch::Plan;
using anabranch::acl::CallContext;
using anabranch::acl::MakeExecutor;
using anabranch::acl::OpCall;
using anabranch::acl::PostFacts;
using anabranch::acl::RunExecutor;
using anabranch::acl::Views;

extern "C" {

aclnnStatus aclnnMhcPostGetWorkspaceSize(const aclTensor* x, const aclTensor* hRes,
                                         const aclTensor* hOut, const aclTensor* hPost,
                                         aclTensor* out, uint64_t* workspaceSize,
                                         aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnMhcPost";
  call.tensors = {{"x", x}, {"hRes", hRes, false}, {"hOut", hOut}, {"hPost", hPost}, {"out", out}};
  call.prepare = [](const Views& t, Plan* plan) {
    anabranch::MhcPostArgs args;
    args.x = t[0];
    args.h_res = t[1];
    args.h_out = t[2];
    args.h_post = t[3];
    args.y = t[4];
    return Prepare(args, plan, CallContext());
  };
  call.layout_tensor = 0;
  call.inner = 2;
  call.facts = [](const Views& t) { return PostFacts(t[0], t[1]); };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcPost");
}

aclnnStatus aclnnMhcPost(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                         aclrtStream stream) {
  return RunExecutor("aclnnMhcPost", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnMhcPostBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* x,
                                                 const aclTensor* hRes, const aclTensor* hOut,
                                                 const aclTensor* hPost, aclTensor* gradX,
                                                 aclTensor* gradHRes, aclTensor* gradHOut,
                                                 aclTensor* gradHPost, uint64_t* workspaceSize,
                                                 aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnMhcPostBackward";
  call.tensors = {{"gradOutput", gradOutput},
                  {"x", x},
                  {"hRes", hRes, false},
                  {"hOut", hOut},
                  {"hPost", hPost},
                  {"gradX", gradX},
                  {"gradHRes", gradHRes, hRes != nullptr},
                  {"gradHOut", gradHOut},
                  {"gradHPost", gradHPost}};
  call.prepare = [](const Views& t, Plan* plan) {
    anabranch::MhcPostBackwardArgs args;
    args.grad_output = t[0];
    args.x = t[1];
    args.h_res = t[2];
    args.h_out = t[3];
    args.h_post = t[4];
    args.grad_x = t[5];
    args.grad_h_res = t[6];
    args.grad_h_out = t[7];
    args.grad_h_post = t[8];
    return Prepare(args, plan, CallContext());
  };
  call.layout_tensor = 1;
  call.inner = 2;
  call.facts = [](const Views& t) { return PostFacts(t[1], t[2]); };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcPostBackward");
}

aclnnStatus aclnnMhcPostBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                 aclrtStream stream) {
  return RunExecutor("aclnnMhcPostBackward", workspace, workspaceSize, executor, stream);
}

}  // extern "C"
