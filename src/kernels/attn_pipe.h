// Two tokens of block attention residuals side by side: one is read from memory and scored, the one
// before it is passed a second time from the cache. Both are taken a unit of 32 elements at a time,
// so that the memory never waits for arithmetic nor the arithmetic for memory.
#ifndef ANABRANCH_SRC_KERNELS_ATTN_PIPE_H_
#define ANABRANCH_SRC_KERNELS_ATTN_PIPE_H_

#include "anabranch/cpu.h"
#include "anabranch/dtype.h"
#include "src/kernels/attn_packed.h"
#include "src/kernels/attn_residual.h"

namespace anabranch {

// Each function does what the two calls of AttnResidualKernels and AttnPackedKernels do, with the
// same bits. Both operands
// have the same count and the same d, a multiple of 32; `carry` is there, `out` is not written;
// `ahead` is there: the rows of the token that follows the one that is read, for fetching.
struct AttnPipeKernels {
  void (*dots_and_sum)(const AttnDots& read, const AttnSum& cached);
  void (*dots_and_sum_packed)(const AttnDots& read, const AttnSumPacked& cached);
  void (*dots_and_grad_rows)(const AttnDots& read, const AttnGradRows& cached);
};

// Kernels for an activation dtype (not kFloat64) and a resolved target.
AttnPipeKernels GetAttnPipeKernels(DType dtype, Target target);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_ATTN_PIPE_H_
