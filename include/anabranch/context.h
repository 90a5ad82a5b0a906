// Context: where a call runs. Threads come from oneTBB unless the caller brings its own pool.
#ifndef ANABRANCH_CONTEXT_H_
#define ANABRANCH_CONTEXT_H_

#include <cstdint>

#include "anabranch/cpu.h"
#include "anabranch/export.h"

namespace anabranch {

// A cheap value; copy it freely. Results never depend on anything in it but the target, and among
// targets with fused multiply-add not on that either.
class ANABRANCH_EXPORT Context {
 public:
  // task(state, i) must be called exactly once for every 0 <= i < count, from any threads, in any
  // order, and all calls must have returned when the function returns. Tasks do not throw.
  using Task = void (*)(void* state, std::int64_t index);
  using ParallelFor = void (*)(void* pool, std::int64_t count, Task task, void* state);

  // oneTBB, every thread this process may use, the best target.
  Context();

  // The same, shared; what calls use that are given no context.
  static const Context& Default();

  // At most this many threads take part (>= 1; smaller values count as 1).
  Context& set_threads(int threads);
  int threads() const { return threads_; }

  // Uses `parallel_for(pool, ...)` instead of oneTBB. `threads` is how many tasks can run at once.
  // An exception that leaves it makes the call return kInternal.
  Context& set_parallel_for(ParallelFor parallel_for, void* pool, int threads);

  Context& set_target(Target target);
  Target target() const { return target_; }

  // Runs the tasks. With one task or one thread they run here, in order, without a hand-off.
  void Run(std::int64_t count, Task task, void* state) const;

 private:
  friend struct ContextFace;  // src/core/context_face.h

  ParallelFor parallel_for_;
  void* pool_ = nullptr;
  int threads_;
  Target target_ = Target::kAuto;
  std::uint8_t face_ = 0;  // whose names of arguments messages use
};

}  // namespace anabranch

#endif  // ANABRANCH_CONTEXT_H_
