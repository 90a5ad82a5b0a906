// phi @ x and sum(x^2) of several tokens, one block of K at a time; and what is made of x
// afterwards, h_in. FP32 arithmetic in the fixed 16-lane layout of simd/vec16-inl.h.
//
// Order of a token's sums (the same for any target, batch and thread): every stream's D elements
// are cut into blocks of kProjectionBlock, padded with zeros to whole units of 32. In a block each
// of 16 lanes adds its products in ascending order, starting from zero; the lanes of the blocks are
// added in ascending order; the 16 lanes are added in the tree 8, 4, 2, 1.
#ifndef ANABRANCH_SRC_KERNELS_PROJECTION_H_
#define ANABRANCH_SRC_KERNELS_PROJECTION_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/cpu.h"
#include "anabranch/dtype.h"

namespace anabranch {

inline constexpr int kProjectionBlock = 512;  // elements of one stream
inline constexpr int kProjectionTokens = 8;   // most tokens of one call

// Copies a block of phi, times gamma where there is one (one rounding), into the order in which
// the micro-kernel reads it: groups of three rows, [group][unit][lanes a, b][row of the group][16].
struct PackProjection {
  const float* phi;  // row 0, first element of the block
  std::ptrdiff_t row_stride;
  std::ptrdiff_t stride;  // between elements
  const float* gamma;     // first element of the block, or null
  std::ptrdiff_t gamma_stride;
  int rows;
  int count;   // elements, 1 .. kProjectionBlock
  float* out;  // rows * (count rounded up to 32)
};

// Adds a block to the sums of `tokens` tokens.
struct ProjectBlock {
  const void* const* x;     // [tokens], each `count` adjacent elements
  const void* const* next;  // [tokens] where the next call will read, for prefetching, or null
  int tokens;               // 1 .. kProjectionTokens
  int count;
  const float* phi;  // packed
  int rows;
  float* sums;  // [tokens][rows + 1][16]; the last row is the sum of squares
};

// out[d] = sum over i ascending of weights[i] * x[i, d]; a product first, then fused multiply-adds.
struct WeightedSum {
  const void* x;  // [n, d], lanes x_lane elements apart
  std::ptrdiff_t x_lane;
  const float* weights;  // [n], through CleanNan
  int n;
  std::int64_t d;
  void* out;    // [d]
  bool stream;  // out goes past the caches; it begins at a multiple of 64 bytes
};

struct ProjectionKernels {
  void (*pack)(const PackProjection&);
  void (*project)(const ProjectBlock&);
  // out[k] = sum of the 16 lanes at sums + 16 k, for k < count.
  void (*finish_sums)(const float* sums, int count, float* out);
  void (*weighted_sum)(const WeightedSum&);
  Target target;  // that this code was compiled for
};

// Kernels for an activation dtype (not kFloat64) and a resolved target.
ProjectionKernels GetProjectionKernels(DType dtype, Target target);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_PROJECTION_H_
