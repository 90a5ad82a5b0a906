// aclnnMhcPre, aclnnMhcPreV2 and their backwards.
#include "aclnnop/aclnn_mhc_pre.h"

#include <utility>
#include <vector>

#include "aclnnop/aclnn_mhc_pre_backward.h"
#include "aclnnop/aclnn_mhc_pre_backward_v2.h"
#include "aclnnop/aclnn_mhc_pre_v2.h"
#include "anabranch/mhc_pre.h"
#include "src/acl/message.h"
#include "src/acl/op_face.h"

using anabranch::MhcOptions;
using anabranch::acl::MakeExecutor;
using anabranch::acl::OpCall;
using anabranch::acl::RunExecutor;
using anabranch::acl::TensorArg;
using anabranch::acl::Views;

namespace anabranch::acl {
namespace {

// The form is told by the rank of hRes or gradHRes beside x, never by the rows of phi: matrices
// have both of x's inner dimensions, the logits of permutations one (n! of them; n*n of them are
// flattened matrices). alpha with two entries: no residual part.
Residual FormOf(const TensorView& x, const TensorView& alpha, const TensorView& res) {
  if (alpha.rank() == 1 && alpha.sizes[0] == 2) return Residual::kNone;
  if (!res.defined() || x.rank() < 2 || res.rank() != x.rank() - 1) return Residual::kMatrix;
  const std::int64_t n = x.sizes[x.rank() - 2];
  std::int64_t squared = 0;
  const bool flat = !__builtin_mul_overflow(n, n, &squared) && res.sizes[res.rank() - 1] == squared;
  return flat ? Residual::kMatrix : Residual::kPermutation;
}

Facts PreFacts(const char* op, const TensorView& x, Residual form) {
  const int rank = x.rank();
  return {.op = op,
          .n = x.sizes[rank - 2],
          .d = x.sizes[rank - 1],
          .tnd = rank == 3,
          .dtype = x.dtype,
          .permutation = form == Residual::kPermutation};
}

// What both versions of the forward have in common; `tensors` in the order of their signatures.
OpCall Forward(const char* name, const char* op, std::vector<TensorArg> tensors,
               const MhcOptions& options) {
  OpCall call;
  call.name = name;
  call.tensors = std::move(tensors);
  call.prepare = [options](const Views& t, Plan* plan) {
    MhcPreArgs args;
    args.x = t[0];
    args.phi = t[1];
    args.alpha = t[2];
    args.bias = t[3];
    args.gamma = t[4];
    args.h_in = t[5];
    args.h_post = t[6];
    args.h_res = t[7];
    args.inv_rms = t[8];
    args.h_mix = t[9];
    args.h_pre = t[10];
    args.options = options;
    args.residual = FormOf(args.x, args.alpha, args.h_res);
    return Prepare(args, plan);
  };
  call.layout_tensor = 0;
  call.inner = 2;
  call.facts = [op](const Views& t) { return PreFacts(op, t[0], FormOf(t[0], t[2], t[7])); };
  return call;
}

OpCall Backward(const char* name, const char* op, std::vector<TensorArg> tensors,
                const MhcOptions& options) {
  OpCall call;
  call.name = name;
  call.tensors = std::move(tensors);
  call.prepare = [options](const Views& t, Plan* plan) {
    MhcPreBackwardArgs args;
    args.x = t[0];
    args.phi = t[1];
    args.alpha = t[2];
    args.grad_h_in = t[3];
    args.grad_h_post = t[4];
    args.grad_h_res = t[5];
    args.inv_rms = t[6];
    args.h_mix = t[7];
    args.h_pre = t[8];
    args.h_post = t[9];
    args.gamma = t[10];
    args.grad_x_post = t[11];
    args.grad_x = t[12];
    args.grad_phi = t[13];
    args.grad_alpha = t[14];
    args.grad_bias = t[15];
    if (args.gamma.defined()) args.grad_gamma = t[16];  // otherwise it is left untouched
    args.options = options;
    args.residual = FormOf(args.x, TensorView(), args.grad_h_res);  // there always is a form
    return Prepare(args, plan);
  };
  call.layout_tensor = 0;
  call.inner = 2;
  call.facts = [op](const Views& t) {
    return PreFacts(op, t[0], FormOf(t[0], TensorView(), t[5]));
  };
  return call;
}

}  // namespace
}  // namespace anabranch::acl

extern "C" {

aclnnStatus aclnnMhcPreGetWorkspaceSize(const aclTensor* x, const aclTensor* phi,
                                        const aclTensor* alpha, const aclTensor* bias,
                                        const aclTensor* gammaOptional, double normEps,
                                        double hcEps, aclTensor* hIn, aclTensor* hPost,
                                        aclTensor* hRes, aclTensor* invRmsOptional,
                                        aclTensor* hMixOptional, aclTensor* hPreOptional,
                                        uint64_t* workspaceSize, aclOpExecutor** executor) try {
  MhcOptions options;
  options.norm_eps = normEps;
  options.hc_eps = hcEps;
  const OpCall call = anabranch::acl::Forward(
      "aclnnMhcPre", "mhc_pre",
      {{"x", x},
       {"phi", phi},
       {"alpha", alpha},
       {"bias", bias},
       {"gamma", gammaOptional, false},
       {"hIn", hIn},
       {"hPost", hPost},
       {"hRes", hRes, false},  // required exactly when alpha has three entries
       {"invRms", invRmsOptional, false},
       {"hMix", hMixOptional, false},
       {"hPre", hPreOptional, false}},
      options);
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcPre");
}

aclnnStatus aclnnMhcPreV2GetWorkspaceSize(const aclTensor* x, const aclTensor* phi,
                                          const aclTensor* alpha, const aclTensor* bias,
                                          const aclTensor* gammaOptional, double normEps,
                                          double hcEps, int64_t opImplMode, aclTensor* hIn,
                                          aclTensor* hPost, aclTensor* hRes,
                                          aclTensor* invRmsOptional, aclTensor* hMixOptional,
                                          aclTensor* hPreOptional, uint64_t* workspaceSize,
                                          aclOpExecutor** executor) try {
  MhcOptions options;
  options.norm_eps = normEps;
  options.hc_eps = hcEps;
  options.op_impl_mode = opImplMode;
  const OpCall call = anabranch::acl::Forward(
      "aclnnMhcPreV2", "mhc_pre_v2",
      {{"x", x},
       {"phi", phi},
       {"alpha", alpha},
       {"bias", bias},
       {"gamma", gammaOptional, false},
       {"hIn", hIn},
       {"hPost", hPost},
       {"hRes", hRes, false},  // required exactly when alpha has three entries
       {"invRms", invRmsOptional, false},
       {"hMix", hMixOptional, false},
       {"hPre", hPreOptional, false}},
      options);
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcPreV2");
}

aclnnStatus aclnnMhcPreBackwardGetWorkspaceSize(
    const aclTensor* x, const aclTensor* phi, const aclTensor* alpha, const aclTensor* gradHIn,
    const aclTensor* gradHPost, const aclTensor* gradHRes, const aclTensor* invRms,
    const aclTensor* hMix, const aclTensor* hPre, const aclTensor* hPost,
    const aclTensor* gammaOptional, const aclTensor* gradXPostOptional, float hcEps,
    const aclTensor* gradX, const aclTensor* gradPhi, const aclTensor* gradAlpha,
    const aclTensor* gradBias, const aclTensor* gradGamma, uint64_t* workspaceSize,
    aclOpExecutor** executor) try {
  MhcOptions options;
  options.hc_eps = hcEps;
  const OpCall call =
      anabranch::acl::Backward("aclnnMhcPreBackward", "mhc_pre",
                               {{"x", x},
                                {"phi", phi},
                                {"alpha", alpha},
                                {"gradHIn", gradHIn},
                                {"gradHPost", gradHPost},
                                {"gradHRes", gradHRes},
                                {"invRms", invRms},
                                {"hMix", hMix},
                                {"hPre", hPre},
                                {"hPost", hPost},
                                {"gamma", gammaOptional, false},
                                {"gradXPost", gradXPostOptional, false},
                                {"gradX", gradX, true, true},
                                {"gradPhi", gradPhi, true, true},
                                {"gradAlpha", gradAlpha, true, true},
                                {"gradBias", gradBias, true, true},
                                {"gradGamma", gradGamma, gammaOptional != nullptr, true}},
                               options);
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcPreBackward");
}

aclnnStatus aclnnMhcPreBackwardV2GetWorkspaceSize(
    const aclTensor* x, const aclTensor* phi, const aclTensor* alpha, const aclTensor* gradHIn,
    const aclTensor* gradHPost, const aclTensor* gradHRes, const aclTensor* invRms,
    const aclTensor* hMix, const aclTensor* hPre, const aclTensor* hPost,
    const aclTensor* gammaOptional, const aclTensor* gradXPostOptional, float hcEps,
    int64_t opImplMode, const aclTensor* gradX, const aclTensor* gradPhi,
    const aclTensor* gradAlpha, const aclTensor* gradBias, const aclTensor* gradGamma,
    uint64_t* workspaceSize, aclOpExecutor** executor) try {
  MhcOptions options;
  options.hc_eps = hcEps;
  options.op_impl_mode = opImplMode;
  const OpCall call =
      anabranch::acl::Backward("aclnnMhcPreBackwardV2", "mhc_pre_v2",
                               {{"x", x},
                                {"phi", phi},
                                {"alpha", alpha},
                                {"gradHIn", gradHIn},
                                {"gradHPost", gradHPost},
                                {"gradHRes", gradHRes},
                                {"invRms", invRms},
                                {"hMix", hMix},
                                {"hPre", hPre},
                                {"hPost", hPost},
                                {"gamma", gammaOptional, false},
                                {"gradXPost", gradXPostOptional, false},
                                {"gradX", gradX, true, true},
                                {"gradPhi", gradPhi, true, true},
                                {"gradAlpha", gradAlpha, true, true},
                                {"gradBias", gradBias, true, true},
                                {"gradGamma", gradGamma, gammaOptional != nullptr, true}},
                               options);
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcPreBackwardV2");
}

aclnnStatus aclnnMhcPre(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                        aclrtStream stream) {
  return RunExecutor("aclnnMhcPre", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnMhcPreV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                          aclrtStream stream) {
  return RunExecutor("aclnnMhcPreV2", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnMhcPreBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                aclrtStream stream) {
  return RunExecutor("aclnnMhcPreBackward", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnMhcPreBackwardV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                  aclrtStream stream) {
  return RunExecutor("aclnnMhcPreBackwardV2", workspace, workspaceSize, executor, stream);
}

}  // extern "C"
