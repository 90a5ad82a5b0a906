// Parts of PreForward's workspace: for pre_forward.cc and pre_forward_few.cc only.
#ifndef ANABRANCH_SRC_KERNELS_PRE_FORWARD_PARTS_H_
#define ANABRANCH_SRC_KERNELS_PRE_FORWARD_PARTS_H_

#include <cstddef>

#include "src/kernels/pre_forward.h"

namespace anabranch {

struct PreForward::Slot {
  float* sums;   // [tile][rows + 1][16]
  float* mix;    // [tile][rows + 1]
  float* gates;  // [tile][n + post]
  float* z;      // [tile][res]
  std::byte* scratch;
};

struct PreForward::Parameters {
  const float* alpha;  // a segment
  const float* bias;   // a row
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_PRE_FORWARD_PARTS_H_
