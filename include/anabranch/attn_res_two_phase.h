// The two-phase form of block attention residuals: the finished blocks are attended to once for all
// queries of the next layers (attn_res_prepare); each layer then adds the one source that was not
// there yet, the running partial block (attn_res_merge).
//
//   prepare, for each query:  m = max_l s_l   l = sum_l e^(s_l - m)   o = sum_l e^(s_l - m) v_l
//   merge, source v, score s: m' = max(m, s)  a = e^(m - m')          b = e^(s - m')
//                             h = (a o + b v) / (a l + b)
//
// Scores s are those of block_attn_res.h. Merged, the result is block_attn_res(blocks, query,
// partial_block = v) within FP32 rounding. Without sources m = -FLT_MAX, l = 0, o = 0, and a merge
// gives h = v. Source: Attention Residuals (Kimi). Shapes: `*` tokens, D hidden size, S queries,
// N blocks, 0..127. Sources are BF16, FP16 or FP32; o, m, l and their gradients FP32. Everything
// FP64 runs the double-precision reference.
#ifndef ANABRANCH_ATTN_RES_TWO_PHASE_H_
#define ANABRANCH_ATTN_RES_TWO_PHASE_H_

#include <vector>

#include "anabranch/context.h"
#include "anabranch/export.h"
#include "anabranch/plan.h"
#include "anabranch/status.h"
#include "anabranch/tensor.h"

namespace anabranch {

struct AttnResPrepareArgs {
  std::vector<TensorView> blocks;  // in  N of [*, D]  activation dtype; may be none
  TensorView queries;              // in  [S, D]  FP32 or the blocks' dtype, S >= 1
  TensorView rmsnorm_gamma;        // in  [D] (for all queries) or [S, D]  FP32 or the blocks'
                                   //     dtype; absent: ones; not used without the norm
  double scale = 1;                // of the scores; finite
  double rmsnorm_eps = 1e-6;       // finite, >= 0
  bool enable_rmsnorm = true;
  TensorView o;  // out [S, *, D]  FP32, overwritten, un-normalised
  TensorView m;  // out [S, *]     FP32
  TensorView l;  // out [S, *]     FP32
};

struct AttnResPrepareBackwardArgs {
  TensorView grad_o;               // in  [S, *, D]  FP32
  TensorView grad_m;               // in  [S, *]     FP32; goes to the first source that has the max
  TensorView grad_l;               // in  [S, *]     FP32
  std::vector<TensorView> blocks;  // in  as in the forward
  TensorView queries;              // in  as in the forward
  TensorView rmsnorm_gamma;        // in  as in the forward
  double scale = 1;
  double rmsnorm_eps = 1e-6;
  bool enable_rmsnorm = true;
  std::vector<TensorView> grad_blocks;  // out N of [*, D]  activation dtype, overwritten
  TensorView grad_queries;              // out like queries, its dtype, overwritten
  TensorView grad_rmsnorm_gamma;        // out like rmsnorm_gamma, its dtype; with gamma only. Zeros
                                        //     without the norm, and then optional
};

struct AttnResMergeArgs {
  TensorView o;              // in  [*, D]  FP32: one query's part of what prepare gave
  TensorView m;              // in  [*]     FP32
  TensorView l;              // in  [*]     FP32
  TensorView v;              // in  [*, D]  activation dtype: the source to add
  TensorView query;          // in  [D] or [1, D]  FP32 or v's dtype
  TensorView rmsnorm_gamma;  // in  [D] or [1, D]  FP32 or v's dtype; absent: ones
  double scale = 1;
  double rmsnorm_eps = 1e-6;
  bool enable_rmsnorm = true;
  TensorView h;  // out [*, D]  v's dtype, overwritten; no overlap
};

struct AttnResMergeBackwardArgs {
  TensorView grad_h;         // in  [*, D]  v's dtype
  TensorView o;              // in  as in the forward
  TensorView m;              // in
  TensorView l;              // in
  TensorView v;              // in
  TensorView query;          // in
  TensorView rmsnorm_gamma;  // in
  double scale = 1;
  double rmsnorm_eps = 1e-6;
  bool enable_rmsnorm = true;
  TensorView grad_o;      // out [*, D]  FP32, overwritten
  TensorView grad_m;      // out [*]     FP32
  TensorView grad_l;      // out [*]     FP32
  TensorView grad_v;      // out [*, D]  v's dtype
  TensorView grad_query;  // out like query, its dtype
  TensorView
      grad_rmsnorm_gamma;  // out like rmsnorm_gamma, its dtype; with gamma only. Zeros without
                           //     the norm, and then optional
};

// Shape inference: see block_attn_res.h. Without blocks the shape of the tokens comes from o, m or
// l (or their gradients), one of which must then be given.
[[nodiscard]] ANABRANCH_EXPORT Status InferAttnResPrepare(AttnResPrepareArgs* args);
[[nodiscard]] ANABRANCH_EXPORT Status InferAttnResPrepareBackward(AttnResPrepareBackwardArgs* args);
[[nodiscard]] ANABRANCH_EXPORT Status InferAttnResMerge(AttnResMergeArgs* args);
[[nodiscard]] ANABRANCH_EXPORT Status InferAttnResMergeBackward(AttnResMergeBackwardArgs* args);

// Checks (null -> dtype -> rank and shape -> attributes -> overlap) and plans; nothing is written.
// Errors: kNullArgument, kInvalidArgument, kOutOfMemory. The plan keeps addresses, not data.
// Workspace, in vectors of D FP32 numbers: prepare S, and 132 bytes a source, query and thread; its
// backward S * (1 + threads + chunks); merge 1; its backward 1 + threads + chunks, where
// chunks = min(64, tokens / 8), rounded up, depends on the token count alone. Outputs of prepare
// and merge that are not dense along D: S or 1 vectors a thread besides.
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const AttnResPrepareArgs& args, Plan* plan,
                                              const Context& context = Context::Default());
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const AttnResPrepareBackwardArgs& args, Plan* plan,
                                              const Context& context = Context::Default());
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const AttnResMergeArgs& args, Plan* plan,
                                              const Context& context = Context::Default());
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const AttnResMergeBackwardArgs& args, Plan* plan,
                                              const Context& context = Context::Default());

}  // namespace anabranch

#endif  // ANABRANCH_ATTN_RES_TWO_PHASE_H_
