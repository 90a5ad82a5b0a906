// mhc_post of one sublayer and mhc_pre_sinkhorn of the next in one pass: the new streams are
// projected while they are in cache.
//
//   y[i] = h_post[i] * h_out + sum over j of h_res[j, i] * x[j]      (mhc_post; without h_res: +
//   x[i]) h_in, next_h_post, next_h_res, ... = mhc_pre_sinkhorn(y, phi, alpha, bias)
//
// The same bits as the two calls. Forward only: its backward is theirs, mhc_pre_sinkhorn_backward
// and then mhc_post_backward with the sum of both gradients of y.
//
// Shapes: * stands for any leading dimensions (tokens), n = 1..16 streams, D >= 1,
// F = n*n + 2n rows, N = 2 * num_iters normalisations, T tokens. Any strides.
// Dtypes: x, h_out, y, h_in float32, bfloat16 or float16, all the same; everything else float32.
// All float64: the reference.
// Source: Manifold-Constrained Hyper-Connections (mHC).
#ifndef ANABRANCH_MHC_POST_PRE_H_
#define ANABRANCH_MHC_POST_PRE_H_

#include "anabranch/context.h"
#include "anabranch/export.h"
#include "anabranch/mhc_options.h"
#include "anabranch/plan.h"
#include "anabranch/status.h"
#include "anabranch/tensor.h"

namespace anabranch {

struct MhcPostPreArgs {
  // The sublayer that ends, as in MhcPostArgs.
  TensorView x;       // in  [*, n, D]  activation dtype
  TensorView h_res;   // in  [*, n, n] or [*, n*n]; absent: y[i] = h_post[i] * h_out + x[i]
  TensorView h_out;   // in  [*, D]  x's dtype
  TensorView h_post;  // in  [*, n]
  TensorView y;       // out [*, n, D]  x's dtype, overwritten like all outputs
  // The sublayer that begins, as in MhcPreSinkhornArgs with y for x.
  TensorView phi;          // in  [F, n*D]
  TensorView alpha;        // in  [3]
  TensorView bias;         // in  [F]
  TensorView h_in;         // out [*, D]  x's dtype
  TensorView next_h_post;  // out [*, n]
  TensorView next_h_res;   // out [*, n, n] or [*, n*n]
  // For the backward; all three or none.
  TensorView h_pre;    // out [*, n]
  TensorView h_mix;    // out [*, F]
  TensorView inv_rms;  // out [*] or [*, 1]
  // Spare the backward the iteration; both or none, and then also the three above.
  TensorView sum_out;   // out [N, T, n]
  TensorView norm_out;  // out [N, T, n, n]
  MhcOptions options;   // used: norm_eps, hc_eps, post_multiplier, num_iters, clamp, op_impl_mode
};

// Fills in absent outputs' sizes and dtypes (the caches only if one of them is defined).
[[nodiscard]] ANABRANCH_EXPORT Status InferMhcPostPre(MhcPostPreArgs* args);

// Checks everything and plans. Workspace: packed phi, 4*F*n*D bytes, and a tile of streams and sums
// for each thread.
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const MhcPostPreArgs& args, Plan* plan,
                                              const Context& context = Context::Default());

}  // namespace anabranch

#endif  // ANABRANCH_MHC_POST_PRE_H_
