// Sinkhorn normalisation of n x n matrices, 16 tokens at a time as structure of arrays: one token a
// lane, so that a token's result does not depend on its neighbours or on the vector width.
#ifndef ANABRANCH_SRC_KERNELS_SINKHORN_H_
#define ANABRANCH_SRC_KERNELS_SINKHORN_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/cpu.h"

namespace anabranch {

inline constexpr int kSinkhornLanes = 16;  // tokens a call

struct SinkhornParams {
  int n;                   // 1..16
  std::int64_t num_iters;  // >= 1
  float eps;
  bool clamps;  // to [clamp_low, clamp_high] first
  float clamp_low;
  float clamp_high;
};

// Element (i, j) of lane l is at [(i * n + j) * 16 + l]; a sum of row or column r at [r * 16 + l].
struct SinkhornForward {
  SinkhornParams params;
  const float* z;  // [n*n][16] logits
  float* h_res;    // [n*n][16], overwritten; may be z
  // All normalisations, or null: sums [2*num_iters][n][16], norms [2*num_iters][n*n][16]. Step 0 is
  // the softmax: its sums are of the exponentials, its norms the softmax WITHOUT eps. Odd steps
  // divide columns, even ones rows; their sums contain eps.
  float* sums;
  float* norms;
};

struct SinkhornBackward {
  SinkhornParams params;
  const float* z;     // [n*n][16]; null when nothing is clamped
  const float* grad;  // [n*n][16] of h_res
  const float* sums;  // as written by the forward
  const float* norms;
  float* grad_z;  // [n*n][16], overwritten; may be grad
};

struct SinkhornKernels {
  void (*forward)(const SinkhornForward&);
  void (*backward)(const SinkhornBackward&);
  const char* name;
  Target target;
};

SinkhornKernels GetSinkhornKernels(int n, Target target);

// Floats of `sums` and `norms` for 16 tokens.
constexpr std::int64_t SinkhornSums(const SinkhornParams& p) {
  return 2 * p.num_iters * p.n * kSinkhornLanes;
}
constexpr std::int64_t SinkhornNorms(const SinkhornParams& p) {
  return 2 * p.num_iters * p.n * p.n * kSinkhornLanes;
}

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_SINKHORN_H_
