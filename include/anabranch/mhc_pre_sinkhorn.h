// mhc_pre_sinkhorn: mhc_pre (matrix form, without gamma) and mhc_sinkhorn on its residual logits
// with the same options, in one pass over x. Bits equal those of the two calls, forward and
// backward.
//
// Source and notation: mhc_pre.h. n = 1..16, F = n*n + 2n, N = 2 * num_iters normalisations. Caches
// of the normalisations: norm_out[0] = softmax + eps, sum_out[0] = sum of exp(z - max); for k >= 1
// the sum (with eps) that step k divided by and the matrix after it.
#ifndef ANABRANCH_MHC_PRE_SINKHORN_H_
#define ANABRANCH_MHC_PRE_SINKHORN_H_

#include "anabranch/context.h"
#include "anabranch/export.h"
#include "anabranch/mhc_options.h"
#include "anabranch/plan.h"
#include "anabranch/status.h"
#include "anabranch/tensor.h"

namespace anabranch {

struct MhcPreSinkhornArgs {
  TensorView x;       // in  [*, n, D]  activation dtype
  TensorView phi;     // in  [F, n*D]   FP32, like all that follows unless it says otherwise
  TensorView alpha;   // in  [3]
  TensorView bias;    // in  [F]
  TensorView h_in;    // out [*, D]  x's dtype, overwritten like all outputs
  TensorView h_post;  // out [*, n]
  TensorView h_res;   // out [*, n, n] or [*, n*n]
  // For the backward; all three or none.
  TensorView h_pre;    // out [*, n]
  TensorView h_mix;    // out [*, F]  also called hc_before_norm
  TensorView inv_rms;  // out [*, 1] or [*]
  // Spare the backward the iteration; both or none, and then also the three above.
  TensorView sum_out;   // out [N, *, n]
  TensorView norm_out;  // out [N, *, n, n]
  MhcOptions options;   // used: norm_eps, pre_eps, sinkhorn_eps, post_multiplier, num_iters, clamp
};

struct MhcPreSinkhornBackwardArgs {
  TensorView grad_h_in;    // in  [*, D]  activation dtype
  TensorView grad_h_post;  // in  [*, n]
  TensorView grad_h_res;   // in  [*, n, n] or [*, n*n]
  TensorView x;            // in  [*, n, D]  activation dtype
  TensorView phi;          // in  [F, n*D]
  TensorView alpha;        // in  [3]
  TensorView bias;         // in  [F]
  TensorView h_pre;        // in  [*, n]
  TensorView h_mix;        // in  [*, F]
  TensorView inv_rms;      // in  [*, 1] or [*]
  TensorView sum_out;      // in  [N, *, n], or both absent: the iterates are recomputed from h_mix
  TensorView norm_out;     // in  [N, *, n, n]; trusted as they are
  TensorView grad_x;       // out [*, n, D]  activation dtype, overwritten like all outputs
  TensorView grad_phi;     // out [F, n*D]
  TensorView grad_alpha;   // out [3]
  TensorView grad_bias;    // out [F]
  // The forward's. With caches the number of iterations is theirs and num_iters is not looked at.
  MhcOptions options;
};

// See InferMhcPre and Prepare in mhc_pre.h. The caches stay absent unless one of theirs is given.
[[nodiscard]] ANABRANCH_EXPORT Status InferMhcPreSinkhorn(MhcPreSinkhornArgs* args);
[[nodiscard]] ANABRANCH_EXPORT Status InferMhcPreSinkhornBackward(MhcPreSinkhornBackwardArgs* args);
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const MhcPreSinkhornArgs& args, Plan* plan,
                                              const Context& context = Context::Default());
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const MhcPreSinkhornBackwardArgs& args, Plan* plan,
                                              const Context& context = Context::Default());

}  // namespace anabranch

#endif  // ANABRANCH_MHC_PRE_SINKHORN_H_
