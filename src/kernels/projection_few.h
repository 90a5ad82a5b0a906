// phi @ x and sum(x^2) of a few tokens, straight from phi as it lies in memory: packing it, as
// projection.h does for many tokens, would cost several times the products. The order of the sums
// is that of projection.h, and so are the bits.
#ifndef ANABRANCH_SRC_KERNELS_PROJECTION_FEW_H_
#define ANABRANCH_SRC_KERNELS_PROJECTION_FEW_H_

#include <cstddef>

#include "anabranch/cpu.h"
#include "anabranch/dtype.h"
#include "src/kernels/projection.h"

namespace anabranch {

// Adds a block of one stream to the sums of `tokens` tokens, for some of the rows.
struct ProjectFew {
  const void* const* x;  // [tokens], each `count` adjacent elements
  int tokens;            // 1 .. kProjectionTokens
  int count;             // 1 .. kProjectionBlock
  const float* phi;      // row 0, first element of the block; elements of a row are adjacent
  std::ptrdiff_t row_stride;
  int rows;
  int begin, end;  // of these, the rows begin .. end - 1
  bool squares;    // and the sum of squares
  float* sums;     // [tokens][rows + 1][16]; the last row is the sum of squares
};

using ProjectFewFunction = void (*)(const ProjectFew&);

// For an activation dtype (not kFloat64) and a resolved target.
ProjectFewFunction GetProjectFew(DType dtype, Target target);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_PROJECTION_FEW_H_
