// Mixtures of permutation matrices, 16 tokens at a time as structure of arrays: one token a lane.
#ifndef ANABRANCH_SRC_KERNELS_PERMUTATION_H_
#define ANABRANCH_SRC_KERNELS_PERMUTATION_H_

#include <cstdint>

#include "anabranch/cpu.h"

namespace anabranch {

inline constexpr int kPermutationLanes = 16;  // tokens a call
inline constexpr int kPermutationStreams = 5;
inline constexpr int kPermutationLogits = 120;  // 5!

// Element k of lane l is at [k * 16 + l].
struct PermutationForward {
  int n;
  const float* z;  // [n!][16]
  float* h_res;    // [n*n][16], overwritten
};

struct PermutationBackward {
  int n;
  const float* z;     // [n!][16]
  const float* grad;  // [n*n][16] of h_res
  float* grad_z;      // [n!][16], overwritten; may be z
};

struct PermutationKernels {
  void (*forward)(const PermutationForward&);
  void (*backward)(const PermutationBackward&);
  const char* name;
  Target target;
};

PermutationKernels GetPermutationKernels(Target target);

// n!, for n = 0..5.
constexpr int PermutationCount(std::int64_t n) {
  return n <= 1 ? 1 : static_cast<int>(n) * PermutationCount(n - 1);
}

// The n! permutations in lexicographic order, n entries each.
const std::uint8_t* Permutations(int n);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_PERMUTATION_H_
