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

using anabranch::acl::RunExecutor;

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
    return Prepare(args, plan, CallContext());
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
    args.residual = FormOf(args.x, args.alpha, args.grad_h_res);
    return Prepare(args, plan, CallContext());
  };
  call.layout_tensor = 0;
  call.inner = 2;
  call.facts = [op](const Views& t) { return PreFacts(op, t[0], FormOf(t[0], t[2], t[5])); };
  return call;
}

// Phase 1 of aclnnMhcPre, and of aclnnMhcPreV2, which has one attribute more.
aclnnStatus Pre(const char* name, const char* op, std::int64_t op_impl_mode, const aclTensor* x,
                const aclTensor* phi, const aclTensor* alpha, const aclTensor* bias,
                const aclTensor* gamma, double norm_eps, double hc_eps, aclTensor* h_in,
                aclTensor* h_post, aclTensor* h_res, aclTensor* inv_rms, aclTensor* h_mix,
                aclTensor* h_pre, std::uint64_t* workspace_size, aclOpExecutor** executor) try {
  MhcOptions options;
  options.norm_eps = norm_eps;
  options.pre_eps = hc_eps;
  options.op_impl_mode = op_impl_mode;
  const OpCall call = Forward(name, op,
                              {{"x", x},
                               {"phi", phi},
                               {"alpha", alpha},
                               {"bias", bias},
                               {"gammaOptional", gamma, false},
                               {"hIn", h_in},
                               {"hPost", h_post},
                               {"hRes", h_res, false},  // required if alpha has three entries
                               {"invRmsOptional", inv_rms, false},
                               {"hMixOptional", h_mix, false},
                               {"hPreOptional", h_pre, false}},
                              options);
  return MakeExecutor(call, workspace_size, executor);
} catch (...) {
  return Caught(name);
}

// Phase 1 of aclnnMhcPreBackward, and of aclnnMhcPreBackwardV2, which has one attribute more.
aclnnStatus PreBackward(const char* name, const char* op, std::int64_t op_impl_mode,
                        const aclTensor* x, const aclTensor* phi, const aclTensor* alpha,
                        const aclTensor* grad_h_in, const aclTensor* grad_h_post,
                        const aclTensor* grad_h_res, const aclTensor* inv_rms,
                        const aclTensor* h_mix, const aclTensor* h_pre, const aclTensor* h_post,
                        const aclTensor* gamma, const aclTensor* grad_x_post, float hc_eps,
                        const aclTensor* grad_x, const aclTensor* grad_phi,
                        const aclTensor* grad_alpha, const aclTensor* grad_bias,
                        const aclTensor* grad_gamma, std::uint64_t* workspace_size,
                        aclOpExecutor** executor) try {
  MhcOptions options;
  options.pre_eps = hc_eps;
  options.op_impl_mode = op_impl_mode;
  const OpCall call =
      Backward(name, op,
               {{"x", x},
                {"phi", phi},
                {"alpha", alpha},
                {"gradHIn", grad_h_in},
                {"gradHPost", grad_h_post},
                {"gradHRes", grad_h_res, false},  // required if alpha has three entries
                {"invRms", inv_rms},
                {"hMix", h_mix},
                {"hPre", h_pre},
                {"hPost", h_post},
                {"gammaOptional", gamma, false},
                {"gradXPostOptional", grad_x_post, false},
                {"gradX", grad_x, true, true},
                {"gradPhi", grad_phi, true, true},
                {"gradAlpha", grad_alpha, true, true},
                {"gradBias", grad_bias, true, true},
                {"gradGamma", grad_gamma, gamma != nullptr, true}},
               options);
  return MakeExecutor(call, workspace_size, executor);
} catch (...) {
  return Caught(name);
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
                                        uint64_t* workspaceSize, aclOpExecutor** executor) {
  return anabranch::acl::Pre("aclnnMhcPre", "mhc_pre", 0, x, phi, alpha, bias, gammaOptional,
                             normEps, hcEps, hIn, hPost, hRes, invRmsOptional, hMixOptional,
                             hPreOptional, workspaceSize, executor);
}

aclnnStatus aclnnMhcPreV2GetWorkspaceSize(const aclTensor* x, const aclTensor* phi,
                                          const aclTensor* alpha, const aclTensor* bias,
                                          const aclTensor* gammaOptional, double normEps,
                                          double hcEps, int64_t opImplMode, aclTensor* hIn,
                                          aclTensor* hPost, aclTensor* hRes,
                                          aclTensor* invRmsOptional, aclTensor* hMixOptional,
                                          aclTensor* hPreOptional, uint64_t* workspaceSize,
                                          aclOpExecutor** executor) {
  return anabranch::acl::Pre("aclnnMhcPreV2", "mhc_pre_v2", opImplMode, x, phi, alpha, bias,
                             gammaOptional, normEps, hcEps, hIn, hPost, hRes, invRmsOptional,
                             hMixOptional, hPreOptional, workspaceSize, executor);
}

aclnnStatus aclnnMhcPreBackwardGetWorkspaceSize(
    const aclTensor* x, const aclTensor* phi, const aclTensor* alpha, const aclTensor* gradHIn,
    const aclTensor* gradHPost, const aclTensor* gradHRes, const aclTensor* invRms,
    const aclTensor* hMix, const aclTensor* hPre, const aclTensor* hPost,
    const aclTensor* gammaOptional, const aclTensor* gradXPostOptional, float hcEps,
    const aclTensor* gradX, const aclTensor* gradPhi, const aclTensor* gradAlpha,
    const aclTensor* gradBias, const aclTensor* gradGamma, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return anabranch::acl::PreBackward("aclnnMhcPreBackward", "mhc_pre", 0, x, phi, alpha, gradHIn,
                                     gradHPost, gradHRes, invRms, hMix, hPre, hPost, gammaOptional,
                                     gradXPostOptional, hcEps, gradX, gradPhi, gradAlpha, gradBias,
                                     gradGamma, workspaceSize, executor);
}

aclnnStatus aclnnMhcPreBackwardV2GetWorkspaceSize(
    const aclTensor* x, const aclTensor* phi, const aclTensor* alpha, const aclTensor* gradHIn,
    const aclTensor* gradHPost, const aclTensor* gradHRes, const aclTensor* invRms,
    const aclTensor* hMix, const aclTensor* hPre, const aclTensor* hPost,
    const aclTensor* gammaOptional, const aclTensor* gradXPostOptional, float hcEps,
    int64_t opImplMode, const aclTensor* gradX, const aclTensor* gradPhi,
    const aclTensor* gradAlpha, const aclTensor* gradBias, const aclTensor* gradGamma,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return anabranch::acl::PreBackward("aclnnMhcPreBackwardV2", "mhc_pre_v2", opImplMode, x, phi,
                                     alpha, gradHIn, gradHPost, gradHRes, invRms, hMix, hPre, hPost,
                                     gammaOptional, gradXPostOptional, hcEps, gradX, gradPhi,
                                     gradAlpha, gradBias, gradGamma, workspaceSize, executor);
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
