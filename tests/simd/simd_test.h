// What tests/simd compiles once per target.
#ifndef ANABRANCH_TESTS_SIMD_SIMD_TEST_H_
#define ANABRANCH_TESTS_SIMD_SIMD_TEST_H_

#include <cstddef>

#include "anabranch/cpu.h"

namespace anabranch::simd_test {

// a and b: the two groups of 16 lanes of a unit of 32 elements.
struct Functions {
  int (*target)();  // what ran
  void (*round_bfloat16)(const float* a, const float* b, bool clean_nan, void* unit);
  void (*round_float16)(const float* a, const float* b, bool clean_nan, void* unit);
  void (*widen_bfloat16)(const void* unit, float* a, float* b);
  void (*widen_float16)(const void* unit, float* a, float* b);
  void (*widen_float32)(const void* unit, float* a, float* b);
  void (*exp)(float* values, std::size_t count);
  float (*sum_lanes)(const float* lanes);
};

Functions Of(Target target);

}  // namespace anabranch::simd_test

#endif  // ANABRANCH_TESTS_SIMD_SIMD_TEST_H_
