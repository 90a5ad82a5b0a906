#include "anabranch/context.h"

#if defined(__SANITIZE_THREAD__)
#include <thread>
#include <vector>
#else
#include <pthread.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#endif

#include <algorithm>
#include <atomic>

namespace anabranch {
namespace {

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer does not see how oneTBB synchronises and would report races that are none. Plain
// threads it sees through, so that races between tasks are found.
void DefaultParallelFor(void* /*pool*/, std::int64_t count, Context::Task task, void* state) {
  constexpr std::int64_t kThreads = 3;
  const auto every_third = [=](std::int64_t first) {
    for (std::int64_t i = first; i < count; i += kThreads) task(state, i);
  };
  std::vector<std::thread> others;
  for (std::int64_t k = 1; k < kThreads; ++k) others.emplace_back(every_third, k);
  every_third(0);
  for (std::thread& thread : others) thread.join();
}
#else
// oneTBB's threads are gone in the child of a fork, and it does not know that.
std::atomic<bool> tbb_used{false};
std::atomic<bool> tbb_lost{false};
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { tbb_lost = tbb_used.load(); });

// Tasks are numbered as they start, so that after a failure of oneTBB itself (no memory for its own
// bookkeeping; tasks do not throw) the rest of them runs here.
void DefaultParallelFor(void* /*pool*/, std::int64_t count, Context::Task task, void* state) {
  std::atomic<std::int64_t> next{0};
  const auto run_one = [&next, count, task, state] {
    const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
    if (i >= count) return false;
    task(state, i);
    return true;
  };
  if (!tbb_lost) {
    if (!tbb_used.load(std::memory_order_relaxed)) tbb_used = true;
    try {
      tbb::parallel_for(
          std::int64_t{0}, count, [&run_one](std::int64_t) { run_one(); },
          tbb::simple_partitioner());
    } catch (...) {  // the loop below does what is left
    }
  }
  while (run_one()) {
  }
}
#endif

}  // namespace

Context::Context() : parallel_for_(&DefaultParallelFor), threads_(GetCpuInfo().threads) {}

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
