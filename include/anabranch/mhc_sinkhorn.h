// mhc_sinkhorn: n x n logits of every token become a nearly doubly stochastic mixing matrix.
//
//   M = softmax over j of z, plus eps;  M = M / (sum_i M + eps);
//   num_iters - 1 times:  M = M / (sum_j M + eps);  M = M / (sum_i M + eps)
//
// i is the first index (row), j the second. The backward is exact (all steps unrolled); it
// recomputes the iterates from the logits unless it is given the forward's caches. Source:
// Manifold-Constrained Hyper-Connections (mHC). Shapes: `*` stands for any leading dimensions
// (tokens), T for their product; n = residual streams, 1..16. Everything is FP32; everything FP64
// runs the double-precision reference.
#ifndef ANABRANCH_MHC_SINKHORN_H_
#define ANABRANCH_MHC_SINKHORN_H_

#include <cstdint>

#include "anabranch/context.h"
#include "anabranch/export.h"
#include "anabranch/mhc_options.h"
#include "anabranch/plan.h"
#include "anabranch/status.h"
#include "anabranch/tensor.h"

namespace anabranch {

// Of `options`: sinkhorn_eps, num_iters, clamp_low, clamp_high. Caches have the leading dimensions
// of the matrices themselves: flattened tokens are refused.
struct MhcSinkhornArgs {
  TensorView logits;    // in  [*, n, n], or [*, n*n] when `n` is set
  TensorView h_res;     // out [*, n, n] or [*, n*n], overwritten; may be exactly logits
  TensorView sum_out;   // out [2*num_iters, *, n]; both caches or none
  TensorView norm_out;  // out [2*num_iters, *, n, n]
  MhcOptions options;
  // Streams; 0: the last two dimensions of logits. Flattened logits need it: (16, 16) could be one
  // matrix or 16 tokens of n = 4.
  std::int64_t n = 0;
  // norm_out[0] is the softmax + eps; true: the softmax itself.
  bool softmax_cache_without_eps = false;
  // So many elements behind each row of n in sum_out and norm_out, in steps of their last stride,
  // are set to 0: rows that a caller keeps at a rounded length.
  std::int64_t row_padding = 0;
};

struct MhcSinkhornBackwardArgs {
  TensorView grad_h_res;   // in  [*, n, n], or [*, n*n] when `n` is set
  TensorView logits;       // in  like grad_h_res; optional with caches, unless a clamp is set
  TensorView sum_out;      // in  the forward's; both caches or none. Trusted as they are
  TensorView norm_out;     // in
  TensorView grad_logits;  // out like grad_h_res, overwritten; may be exactly grad_h_res
  MhcOptions options;      // the forward's
  std::int64_t n = 0;      // as in the forward
  bool softmax_cache_without_eps = false;
};

// Shape inference: fills in absent h_res or grad_logits (caches stay absent), refuses
// contradictions; sizes may be kUnknown, addresses and strides are not looked at.
[[nodiscard]] ANABRANCH_EXPORT Status InferMhcSinkhorn(MhcSinkhornArgs* args);
[[nodiscard]] ANABRANCH_EXPORT Status InferMhcSinkhornBackward(MhcSinkhornBackwardArgs* args);

// Checks and plans; nothing is written. Errors: kNullArgument, kInvalidArgument, kOutOfMemory.
// Workspace of the backward, and of a forward with caches: 128 * num_iters * (n*n + n) bytes a
// thread, whatever T.
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const MhcSinkhornArgs& args, Plan* plan,
                                              const Context& context = Context::Default());
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const MhcSinkhornBackwardArgs& args, Plan* plan,
                                              const Context& context = Context::Default());

}  // namespace anabranch

#endif  // ANABRANCH_MHC_SINKHORN_H_
