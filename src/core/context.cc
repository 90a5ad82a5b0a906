#include "anabranch/context.h"

#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>

#include <algorithm>

namespace anabranch {
namespace {

void TbbParallelFor(void* /*pool*/, std::int64_t count, Context::Task task, void* state) {
  tbb::parallel_for(
      std::int64_t{0}, count, [task, state](std::int64_t i) { task(state, i); },
      tbb::simple_partitioner());
}

}  // namespace

Context::Context() : parallel_for_(&TbbParallelFor), threads_(GetCpuInfo().threads) {}

const Context& Context::Default() {
  static const Context context;
  return context;
}

Context& Context::set_threads(int threads) {
  threads_ = std::max(threads, 1);
  return *this;
}

Context& Context::set_parallel_for(ParallelFor parallel_for, void* pool, int threads) {
  parallel_for_ = parallel_for;
  pool_ = pool;
  return set_threads(threads);
}

Context& Context::set_target(Target target) {
  target_ = target;
  return *this;
}

void Context::Run(std::int64_t count, Task task, void* state) const {
  if (count <= 1 || threads_ == 1) {
    for (std::int64_t i = 0; i < count; ++i) task(state, i);
    return;
  }
  parallel_for_(pool_, count, task, state);
}

}  // namespace anabranch
