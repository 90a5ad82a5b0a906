// Sums of source rows in FP32 for the two-phase form of attention residuals, and what comes back
// from FP32 to a row. Packed vectors: see attn_residual.h.
#ifndef ANABRANCH_SRC_KERNELS_ATTN_PACKED_H_
#define ANABRANCH_SRC_KERNELS_ATTN_PACKED_H_

#include <cstdint>

#include "anabranch/cpu.h"
#include "anabranch/dtype.h"

namespace anabranch {

// acc = (add ? acc : 0) + sum_l weights[l] * rows[l]
struct AttnSumPacked {
  const void* const* rows;  // [count][d]
  const float* weights;     // [count]
  int count;
  std::int64_t d;
  bool add;
  float* acc;  // packed [d]
};

// out = sum_j weights[j] * vectors[j] - c * row, rounded once
struct AttnMix {
  const float* const* vectors;  // [count], packed [d]
  const float* weights;         // [count]
  std::int64_t count;
  const void* row;  // [d], or null: no such product
  float c;
  std::int64_t d;
  void* out;  // [d] in the row's dtype, overwritten
};

// An FP32 row in memory order to a packed vector, padded with zeros to whole units, and back.
struct AttnPack {
  const float* from;   // [d]
  const float* ahead;  // null; or [d], the row that is packed next: fetched meanwhile
  std::int64_t d;
  float* to;  // packed [d]
};
struct AttnUnpack {
  const float* from;  // packed [d]
  std::int64_t d;
  float* to;       // [d]
  bool streaming;  // non-temporal stores
};

struct AttnPackedKernels {
  void (*sum_packed)(const AttnSumPacked&);
  void (*mix)(const AttnMix&);
  void (*pack)(const AttnPack&);
  void (*unpack)(const AttnUnpack&);
};

// Kernels for an activation dtype (not kFloat64) and a resolved target.
AttnPackedKernels GetAttnPackedKernels(DType dtype, Target target);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_ATTN_PACKED_H_
