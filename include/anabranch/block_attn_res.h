// block_attn_res: attend over the outputs of earlier blocks, one learned query, per token.
//
//   rms_l = sqrt(mean_d(v_l^2) + eps)                     (1 without the norm)
//   s_l   = scale * sum_d gamma_d w_d v_{l,d} / rms_l     (gamma = 1 without the norm or if absent)
//   alpha = softmax over l of s
//   h     = sum_l alpha_l v_l                             raw v
//
// Source: Attention Residuals (Kimi), block form. Shapes: `*` stands for any leading dimensions
// (tokens; [B,S] or [T] or none), D = hidden size, >= 1, N = blocks, 1..127, L = N, plus one with a
// partial block. Sources v are the blocks in order, then the partial block: separate tensors of one
// shape and dtype (BF16, FP16 or FP32), each with its own strides, the same one as often as wanted;
// they are never stacked or copied. Everything FP64 runs the double-precision reference.
#ifndef ANABRANCH_BLOCK_ATTN_RES_H_
#define ANABRANCH_BLOCK_ATTN_RES_H_

#include <vector>

#include "anabranch/context.h"
#include "anabranch/export.h"
#include "anabranch/plan.h"
#include "anabranch/status.h"
#include "anabranch/tensor.h"

namespace anabranch {

inline constexpr int kMaxBlocks = 127;

struct BlockAttnResArgs {
  std::vector<TensorView> blocks;  // in  N of [*, D]  activation dtype
  TensorView partial_block;        // in  [*, D]  same dtype; absent: no such source, not a zero one
  TensorView proj_weight;          // in  [D] or [1, D]  FP32 or the blocks' dtype: w
  TensorView rmsnorm_gamma;        // in  [D] or [1, D]  FP32 or the blocks' dtype; absent: ones;
                                   //     not used without the norm
  double scale = 1;                // of the scores; finite
  double rmsnorm_eps = 1e-6;       // finite, >= 0
  bool enable_rmsnorm = true;
  TensorView h;            // out [*, D]     activation dtype, overwritten; no overlap
  TensorView rms_cache;    // out [*, L, 1] or [*, L]  FP32, optional: rms (the denominator itself)
  TensorView alpha_cache;  // out [*, L]     FP32, optional; needed by the backward
};

struct BlockAttnResBackwardArgs {
  TensorView grad_h;               // in  [*, D]  activation dtype
  std::vector<TensorView> blocks;  // in  as in the forward
  TensorView partial_block;        // in  as in the forward
  TensorView proj_weight;          // in  as in the forward
  TensorView rmsnorm_gamma;        // in  as in the forward
  TensorView alpha_cache;          // in  [*, L]  FP32, of the forward
  TensorView rms_cache;            // in  [*, L, 1] or [*, L]  FP32, optional: recomputed if absent
  double scale = 1;
  double rmsnorm_eps = 1e-6;  // used only where rms is recomputed
  bool enable_rmsnorm = true;
  std::vector<TensorView> grad_blocks;  // out N of [*, D]  activation dtype, overwritten
  TensorView grad_partial_block;        // out [*, D]  with partial_block only
  TensorView grad_proj_weight;          // out like proj_weight, its dtype, overwritten
  TensorView grad_rmsnorm_gamma;        // out like rmsnorm_gamma, its dtype; with gamma only. Zeros
                                        //     without the norm, and then optional
};

// Shape inference: fills in sizes and dtype of every absent output from the inputs and refuses
// contradictions, in the same words as Prepare. Sizes may be kUnknown; addresses and strides are
// not looked at. Absent caches stay absent; an empty grad_blocks becomes N entries.
[[nodiscard]] ANABRANCH_EXPORT Status InferBlockAttnRes(BlockAttnResArgs* args);
[[nodiscard]] ANABRANCH_EXPORT Status InferBlockAttnResBackward(BlockAttnResBackwardArgs* args);

// Checks (null -> dtype -> rank and shape -> attributes -> overlap) and plans; nothing is written.
// Errors: kNullArgument, kInvalidArgument, kOutOfMemory. The plan keeps addresses, not data.
// Workspace: 4 bytes a hidden element forward; backward (1 + chunks) times that, where chunks <= 64
// is a function of the token count alone; both and 384 bytes a source and thread.
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const BlockAttnResArgs& args, Plan* plan,
                                              const Context& context = Context::Default());
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const BlockAttnResBackwardArgs& args, Plan* plan,
                                              const Context& context = Context::Default());

}  // namespace anabranch

#endif  // ANABRANCH_BLOCK_ATTN_RES_H_
