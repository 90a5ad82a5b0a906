// Arithmetic of block attention residuals for one token: scores of its L source rows, their
// weighted sum, and the gradient rows. Rows are `d` adjacent elements at unrelated addresses.
#ifndef ANABRANCH_SRC_KERNELS_ATTN_RESIDUAL_H_
#define ANABRANCH_SRC_KERNELS_ATTN_RESIDUAL_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/cpu.h"
#include "anabranch/dtype.h"

namespace anabranch {

inline constexpr int kMaxSources = 128;

// FP32 vectors that go with rows of an activation dtype are kept "packed": in the order in which
// the lanes of the 16-lane layout meet the elements (see vec16-inl.h), padded with zeros to whole
// units of 32. Loading them then needs no shuffle.
constexpr std::int64_t PackedLength(std::int64_t d) { return (d + 31) / 32 * 32; }
constexpr std::int64_t PackedIndex(DType dtype, std::int64_t k) {
  if (dtype != DType::kBFloat16) return k;
  return k / 32 * 32 + k % 2 * 16 + k % 32 / 2;  // even elements, then odd ones
}

// Sums along d of one row. Which ones are computed is the kernel's choice; see AttnDots.
struct AttnRowSums {
  float squares;  // v . v
  float query;    // v . q
  float grad;     // v . dh
};

// Floats of running sums that a row keeps between the pieces of a token.
inline constexpr int kAttnCarry = 3 * 32;

struct AttnDots {
  const void* const* rows;  // [count][d]
  int count;
  const float* query;  // packed [d]
  const void* grad;    // dh [d] in the rows' dtype, or null: then `grad` sums are not computed
  bool squares;        // whether `squares` are computed
  std::int64_t d;
  float* carry;      // null; or [count][kAttnCarry], zero before a token's first piece (all pieces
                     // but the last a multiple of 32 elements)
  AttnRowSums* out;  // [count]; of the pieces so far; null: not wanted yet
  // Null: nothing is fetched ahead; or [count][d], the rows that are read after these.
  const void* const* ahead = nullptr;
};

struct AttnSum {
  const void* const* rows;  // [count][d]
  const float* weights;     // [count]
  int count;
  std::int64_t d;
  void* out;       // [d] in the rows' dtype, overwritten
  bool streaming;  // non-temporal stores
};

// dv_l = alpha_l dh + (t_l q - c_l v_l);  u += sum_l t_l v_l
struct AttnGradRows {
  const void* const* rows;  // [count][d]
  const void* grad;         // dh [d]
  const float* query;       // packed [d]
  const float* alpha;       // [count]
  const float* t;           // [count]
  const float* c;           // [count], or null: no such product
  int count;
  std::int64_t d;
  float* u;          // packed [d], added to
  void* const* out;  // [count][d], overwritten
  bool streaming;
};

struct AttnResidualKernels {
  void (*dots)(const AttnDots&);
  void (*sum)(const AttnSum&);
  void (*grad_rows)(const AttnGradRows&);
  // out[k] = exp(s[k] - m), NaN kept; may be in place. Arguments above 0 are not meant.
  void (*exp_minus)(const float* s, float m, int count, float* out);
  // Orders non-temporal stores before what follows.
  void (*flush)();
  Target target;  // that this code was compiled for
};

// Kernels for an activation dtype (not kFloat64) and a resolved target.
AttnResidualKernels GetAttnResidualKernels(DType dtype, Target target);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_ATTN_RESIDUAL_H_
