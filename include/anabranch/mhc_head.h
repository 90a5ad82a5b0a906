// mhc_head: collapse the residual streams once more at the end of the network.
//
//   r    = 1 / sqrt(mean(xf^2) + norm_eps)
//   h_mix = fn @ xf
//   w    = sigmoid(h_mix * r * scale + base) + pre_eps
//   y[d] = sum_i w[i] * x[i,d]
//
// The pre rows of mhc_pre alone. Source and notation: mhc_pre.h. n = 1..16.
#ifndef ANABRANCH_MHC_HEAD_H_
#define ANABRANCH_MHC_HEAD_H_

#include "anabranch/context.h"
#include "anabranch/export.h"
#include "anabranch/mhc_options.h"
#include "anabranch/plan.h"
#include "anabranch/status.h"
#include "anabranch/tensor.h"

namespace anabranch {

struct MhcHeadArgs {
  TensorView x;      // in  [*, n, D]  activation dtype
  TensorView fn;     // in  [n, n*D]   FP32, like all that follows but y
  TensorView base;   // in  [n]
  TensorView scale;  // in  [1]
  TensorView y;      // out [*, D]     x's dtype, overwritten like all outputs
  // For the backward; all three or none.
  TensorView inv_rms;  // out [*]
  TensorView h_mix;    // out [*, n]
  TensorView w;        // out [*, n]  with pre_eps
  MhcOptions options;  // used: norm_eps, pre_eps
};

struct MhcHeadBackwardArgs {
  TensorView grad_y;      // in  [*, D]     activation dtype
  TensorView x;           // in  [*, n, D]  activation dtype
  TensorView fn;          // in  [n, n*D]
  TensorView scale;       // in  [1]
  TensorView inv_rms;     // in  [*]     these three as the forward gave them
  TensorView h_mix;       // in  [*, n]
  TensorView w;           // in  [*, n]
  TensorView grad_x;      // out [*, n, D]  activation dtype, overwritten like all outputs
  TensorView grad_fn;     // out [n, n*D]
  TensorView grad_base;   // out [n]
  TensorView grad_scale;  // out [1]
  MhcOptions options;     // the forward's; used: pre_eps
};

// See InferMhcPre and Prepare in mhc_pre.h. The caches stay absent unless one of them is given.
[[nodiscard]] ANABRANCH_EXPORT Status InferMhcHead(MhcHeadArgs* args);
[[nodiscard]] ANABRANCH_EXPORT Status InferMhcHeadBackward(MhcHeadBackwardArgs* args);
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const MhcHeadArgs& args, Plan* plan,
                                              const Context& context = Context::Default());
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const MhcHeadBackwardArgs& args, Plan* plan,
                                              const Context& context = Context::Default());

}  // namespace anabranch

#endif  // ANABRANCH_MHC_HEAD_H_
