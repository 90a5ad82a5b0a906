// Hands out work items to tasks. Which task computes an item never changes its bits.
#ifndef ANABRANCH_SRC_CORE_PARALLEL_H_
#define ANABRANCH_SRC_CORE_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "anabranch/context.h"

namespace anabranch {

// Runs loop(slot, take) on at most min(threads, context.threads()) slots side by side; every take()
// gives the next of the items, `items` or more when there is none left.
template <class Loop>
void ForEachSlot(const Context& context, int threads, std::int64_t items, const Loop& loop) {
  struct State {
    std::atomic<std::int64_t> next{0};
    const Loop* loop;
  } state{{}, &loop};
  const std::int64_t slots = std::min<std::int64_t>({threads, context.threads(), items});
  context.Run(
      slots,
      [](void* pointer, std::int64_t slot) {
        State& s = *static_cast<State*>(pointer);
        const auto take = [&s] { return s.next.fetch_add(1, std::memory_order_relaxed); };
        (*s.loop)(static_cast<int>(slot), take);
      },
      &state);
}

// Calls body(slot, item) once for every 0 <= item < items. Items of one slot run one after another,
// so a slot may own scratch memory.
template <class Body>
void ForEachItem(const Context& context, int threads, std::int64_t items, const Body& body) {
  ForEachSlot(context, threads, items, [&](int slot, const auto& take) {
    for (std::int64_t item = take(); item < items; item = take()) body(slot, item);
  });
}

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// As few threads as do `items` equal items in as many rounds as `threads` would: 520 items keep 58
// threads busy for nine rounds, and 64 are not done sooner.
constexpr std::int64_t BusyThreads(std::int64_t items, std::int64_t threads) {
  return items <= 0 ? 1 : CeilDiv(items, CeilDiv(items, threads));
}

// How many tasks are worth starting for this much memory traffic: below about 256 KiB a task, a
// thread hand-off (some microseconds) costs more than it saves.
inline int ThreadsForBytes(const Context& context, std::int64_t items, double bytes) {
  constexpr double kBytesPerTask = 256.0 * 1024;
  const double by_work = std::max(1.0, bytes / kBytesPerTask);
  const double by_items = static_cast<double>(std::max<std::int64_t>(items, 1));
  const double most = std::min({by_work, by_items, static_cast<double>(context.threads())});
  return static_cast<int>(BusyThreads(items, static_cast<std::int64_t>(most)));
}

// Tokens of one work item: about 512 KiB of memory traffic, which hides the cost of handing it out,
// but no more than a 32nd of a thread's share, so that the threads end together. Only for work
// whose bits do not depend on how tokens are grouped.
inline std::int64_t TokensPerItem(const Context& context, std::int64_t tokens, double token_bytes) {
  const double by_bytes = 524288 / token_bytes;
  const double by_share = static_cast<double>(tokens) / (32.0 * context.threads());
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::min(by_bytes, by_share)), 1,
                                  std::max<std::int64_t>(tokens, 1));
}

// As TokensPerItem for kernels that take `lanes` tokens at once for the price of one: one to four
// such calls an item, 32 items a thread if there are as many.
inline std::int64_t LaneTile(std::int64_t tokens, std::int64_t lanes, int threads) {
  return lanes * std::clamp<std::int64_t>(tokens / (32 * lanes * threads), 1, 4);
}

// Outputs larger than this are written past the caches: the last-level cache, but not more of it
// than 8 MiB a core that this process may use. Virtual machines report the whole cache of their
// host (260 MiB seen for two cores), of which neighbours hold the rest.
inline std::int64_t StreamingThreshold() {
  const CpuInfo& cpu = GetCpuInfo();
  return std::min(cpu.llc_bytes, (std::int64_t{8} << 20) * cpu.threads);
}

}  // namespace anabranch

#endif  // ANABRANCH_SRC_CORE_PARALLEL_H_
