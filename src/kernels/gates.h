// The logistic sigmoid of arrays.
#ifndef ANABRANCH_SRC_KERNELS_GATES_H_
#define ANABRANCH_SRC_KERNELS_GATES_H_

#include <cstdint>

#include "anabranch/cpu.h"

namespace anabranch {

// values[k] = 1 / (1 + exp(-values[k])), in place, k < count. NaN stays NaN, +-infinity give 1 and
// 0. One exponential and one IEEE division; equal bits on all targets with FMA.
using SigmoidFunction = void (*)(float* values, std::int64_t count);
SigmoidFunction GetSigmoid(Target target);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_GATES_H_
