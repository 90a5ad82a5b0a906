// mhc_post: write a sublayer's output back to all residual streams and mix them.
//
//   y[i,:] = h_post[i] * h_out[:] + sum_j h_res[j,i] * x[j,:]     (the FIRST index of h_res is
//   summed) y[i,:] = h_post[i] * h_out[:] + x[i,:]                        (h_res absent)
//
// Source: Manifold-Constrained Hyper-Connections (mHC); DeepSeek-V4. Shapes: `*` stands for any
// leading dimensions (tokens; [B,S] or [T] or none), n = residual streams, 1..16, D = hidden size,
// >= 1. Activations are all BF16, all FP16 or all FP32; coefficients are FP32. Everything FP64 runs
// the double-precision reference.
#ifndef ANABRANCH_MHC_POST_H_
#define ANABRANCH_MHC_POST_H_

#include "anabranch/context.h"
#include "anabranch/export.h"
#include "anabranch/plan.h"
#include "anabranch/status.h"
#include "anabranch/tensor.h"

namespace anabranch {

struct MhcPostArgs {
  TensorView x;       // in  [*, n, D]  activation dtype
  TensorView h_res;   // in  [*, n, n] or [*, n*n]  FP32; absent: streams are not mixed
  TensorView h_out;   // in  [*, D]     x's dtype
  TensorView h_post;  // in  [*, n]     FP32
  TensorView y;       // out [*, n, D]  x's dtype, overwritten; may be exactly x, else no overlap
};

struct MhcPostBackwardArgs {
  TensorView grad_output;  // in  [*, n, D]  activation dtype
  TensorView x;            // in  [*, n, D]  same dtype
  TensorView h_res;        // in  [*, n, n] or [*, n*n]  FP32, or absent
  TensorView h_out;        // in  [*, D]     same dtype
  TensorView h_post;       // in  [*, n]     FP32
  TensorView grad_x;  // out [*, n, D]  activation dtype, overwritten; may be exactly grad_output
  TensorView grad_h_res;   // out like h_res, FP32; optional when h_res is absent ([*, n, n] then)
  TensorView grad_h_out;   // out [*, D]     activation dtype
  TensorView grad_h_post;  // out [*, n]     FP32
};

// Shape inference: fills in sizes and dtype of every absent output from the inputs and refuses
// contradictions, in the same words as Prepare. Sizes may be kUnknown; addresses and strides are
// not looked at. An optional output that is absent stays absent only where Prepare allows it.
[[nodiscard]] ANABRANCH_EXPORT Status InferMhcPost(MhcPostArgs* args);
[[nodiscard]] ANABRANCH_EXPORT Status InferMhcPostBackward(MhcPostBackwardArgs* args);

// Checks (null -> dtype -> rank and shape -> attributes -> overlap) and plans; nothing is written.
// Errors: kNullArgument, kInvalidArgument, kOutOfMemory. The plan keeps addresses, not data.
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const MhcPostArgs& args, Plan* plan,
                                              const Context& context = Context::Default());
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const MhcPostBackwardArgs& args, Plan* plan,
                                              const Context& context = Context::Default());

}  // namespace anabranch

#endif  // ANABRANCH_MHC_POST_H_
