// The parts of PreBackward's workspace: for pre_backward.cc and pre_backward_tokens.cc only.
#ifndef ANABRANCH_SRC_KERNELS_PRE_BACKWARD_MEMORY_H_
#define ANABRANCH_SRC_KERNELS_PRE_BACKWARD_MEMORY_H_

#include <cstddef>

#include "src/kernels/pre_backward.h"

namespace anabranch {

struct PreBackward::Memory {
  float* alpha;      // [3]
  float* bias;       // [rows]
  float* grad_bias;  // [rows], then [rows] of grad_alpha before its rows are added
  float* partial;    // [items of a step][2 * rows]
  float* d_mix;      // [step][rows]
  float* by_row;     // [step][rows], see GradMix
  float* by_token;   // [step][rows]
  float* rms;        // [step]
  float* h_pre;      // [step][n]
  float* phi;        // units, unless one step takes all tokens
  float* grad_phi;   // units
  std::byte* slots;
  std::byte* end;
};

struct PreBackward::Slot {
  float* dz;     // [kGradItem][rows]
  float* z;      // [kGradItem][res]
  float* res;    // [kGradItem][res]
  float* gates;  // [kGradItem][n + post]
  float* dots;   // [n * 16 + n]
  float* phi;    // units of a block, if one step takes all tokens
  float* grad_phi;
  std::byte* scratch;
  std::byte* staging;  // four blocks of a tile's streams, when rows are not dense
  std::byte* end;
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_PRE_BACKWARD_MEMORY_H_
