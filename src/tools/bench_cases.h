// What `--shape` and `--dtype` of `anabranch bench` mean.
#ifndef ANABRANCH_SRC_TOOLS_BENCH_CASES_H_
#define ANABRANCH_SRC_TOOLS_BENCH_CASES_H_

#include <vector>

#include "src/ops/catalog.h"
#include "src/tools/commands.h"

namespace anabranch::tools {

// The cases that a request means for one operator pass. Throws UsageError for shapes that are none
// or that the operator does not support.
std::vector<Case> BenchCases(const OperatorEntry& entry, const BenchOptions& options);

}  // namespace anabranch::tools

#endif  // ANABRANCH_SRC_TOOLS_BENCH_CASES_H_
