// Attention of several queries over the same source rows of one token (attn_res_prepare), and what
// joins the result with one more row (attn_res_merge). Each source element is loaded and widened
// once for several queries. Packed vectors: see attn_residual.h.
#ifndef ANABRANCH_SRC_KERNELS_ATTN_QUERIES_H_
#define ANABRANCH_SRC_KERNELS_ATTN_QUERIES_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/cpu.h"
#include "anabranch/dtype.h"

namespace anabranch {

// Floats of running sums of one row and query between the pieces of a token.
inline constexpr int kQueryCarry = 32;

// out[s][l] = query s . row l, with the bits of AttnDots.
struct AttnQueryDots {
  const void* const* rows;  // [count][d]
  int count;
  const float* queries;  // packed; query s begins at s * query_stride
  std::int64_t query_stride;
  std::int64_t query_count;
  std::int64_t d;
  float* carry;  // [query_count][count][kQueryCarry], zero before a token's first piece (all pieces
                 // but the last a multiple of 32 elements)
  float* out;    // [query_count][count]; null: more pieces follow
};

// out[s] = sum_l weights[s][l] * row l, FP32
struct AttnQuerySums {
  const void* const* rows;  // [count][d]
  int count;
  const float* weights;  // [query_count][count]
  std::int64_t query_count;
  std::int64_t d;
  float* const* out;  // [query_count][d] in memory order, overwritten
  bool streaming;     // non-temporal stores
};

// out = old_weight * o + new_weight * row, rounded once
struct AttnJoin {
  const float* o;  // [d] in memory order
  float old_weight;
  const void* row;  // [d]
  float new_weight;
  std::int64_t d;
  void* out;  // [d] in the row's dtype, overwritten
  bool streaming;
  const float* ahead;  // null; or [d], the o that is read next: fetched meanwhile
};

struct AttnQueryKernels {
  void (*dots)(const AttnQueryDots&);
  void (*sums)(const AttnQuerySums&);
  void (*join)(const AttnJoin&);
};

// Kernels for an activation dtype (not kFloat64) and a resolved target.
AttnQueryKernels GetAttnQueryKernels(DType dtype, Target target);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_ATTN_QUERIES_H_
