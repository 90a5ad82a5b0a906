// mhc_pre: collapse the residual streams into a sublayer's input, and compute the coefficients with
// which mhc_post will write the sublayer's output back. xf is a token's x as K = n*D values.
//
//   r       = 1 / sqrt(mean(xf^2) + norm_eps)
//   h_mix   = phi @ (xf * gamma)                       gamma absent: ones
//   h_pre   = sigmoid(h_mix_pre * r * alpha[0] + bias_pre) + pre_eps            rows 0..n-1
//   h_post  = post_multiplier * sigmoid(h_mix_post * r * alpha[1] + bias_post) rows n..2n-1
//   h_res   = h_mix_res * r * alpha[2] + bias_res                              rows 2n..
//   h_in[d] = sum_i h_pre[i] * x[i,d]
//
// h_res are logits: mhc_sinkhorn or mhc_permutation makes a mixing matrix of them.
// Source: Manifold-Constrained Hyper-Connections (mHC); DeepSeek-V4. Shapes: `*` stands for any
// leading dimensions (tokens; [B,S] or [T] or none), n = residual streams, D = hidden size, >= 1,
// F = rows of phi: n*n + 2n (matrix, n = 1..16), n! + 2n (permutation, n = 1..5) or 2n (none).
// Activations are all BF16, all FP16 or all FP32; everything else is FP32. Everything FP64 runs the
// double-precision reference.
#ifndef ANABRANCH_MHC_PRE_H_
#define ANABRANCH_MHC_PRE_H_

#include "anabranch/context.h"
#include "anabranch/export.h"
#include "anabranch/mhc_options.h"
#include "anabranch/plan.h"
#include "anabranch/status.h"
#include "anabranch/tensor.h"

namespace anabranch {

struct MhcPreArgs {
  TensorView x;       // in  [*, n, D]  activation dtype
  TensorView phi;     // in  [F, n*D]
  TensorView alpha;   // in  [3], or [2] without residual part
  TensorView bias;    // in  [F]
  TensorView gamma;   // in  [n, D]; absent: ones
  TensorView h_in;    // out [*, D]  x's dtype, overwritten
  TensorView h_post;  // out [*, n]
  TensorView h_res;   // out [*, n, n] or [*, n*n]; permutation: [*, n!]; none: absent
  // For the backward; all three or none.
  TensorView inv_rms;  // out [*]     r
  TensorView h_mix;    // out [*, F]
  TensorView h_pre;    // out [*, n]  with pre_eps
  MhcOptions options;  // used: norm_eps, pre_eps, post_multiplier, op_impl_mode
  Residual residual = Residual::kMatrix;
};

struct MhcPreBackwardArgs {
  TensorView x;            // in  [*, n, D]  activation dtype
  TensorView phi;          // in  [F, n*D]
  TensorView alpha;        // in  [3] or [2]
  TensorView grad_h_in;    // in  [*, D]  x's dtype
  TensorView grad_h_post;  // in  [*, n]
  TensorView grad_h_res;   // in  like h_res; absent without residual part
  TensorView inv_rms;      // in  [*]     these four as the forward gave them
  TensorView h_mix;        // in  [*, F]
  TensorView h_pre;        // in  [*, n]
  TensorView h_post;       // in  [*, n]
  TensorView gamma;        // in  [n, D] or absent
  TensorView grad_x_post;  // in  [*, n, D]  x's dtype, or absent: added to grad_x before rounding
  TensorView grad_x;       // out [*, n, D]  x's dtype, overwritten like all outputs
  TensorView grad_phi;     // out [F, n*D]
  TensorView grad_alpha;   // out like alpha
  TensorView grad_bias;    // out [F]
  TensorView grad_gamma;   // out [n, D]; exactly when gamma is given
  MhcOptions options;      // the forward's; used: pre_eps, post_multiplier, op_impl_mode
  Residual residual = Residual::kMatrix;
};

// Shape inference: fills in sizes and dtype of every absent output from the inputs and refuses
// contradictions, in the same words as Prepare. Sizes may be kUnknown; addresses and strides are
// not looked at. The three outputs for the backward stay absent unless one of them is given.
[[nodiscard]] ANABRANCH_EXPORT Status InferMhcPre(MhcPreArgs* args);
[[nodiscard]] ANABRANCH_EXPORT Status InferMhcPreBackward(MhcPreBackwardArgs* args);

// Checks (null -> dtype -> rank and shape -> attributes -> overlap) and plans; nothing is written.
// Errors: kNullArgument, kInvalidArgument, kOutOfMemory. The plan keeps addresses, not data. With
// no tokens the parameter gradients are zeroed. Workspace: the packed phi (forward; backward twice
// that) and buffers of each thread, whatever the number of tokens.
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const MhcPreArgs& args, Plan* plan,
                                              const Context& context = Context::Default());
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const MhcPreBackwardArgs& args, Plan* plan,
                                              const Context& context = Context::Default());

}  // namespace anabranch

#endif  // ANABRANCH_MHC_PRE_H_
