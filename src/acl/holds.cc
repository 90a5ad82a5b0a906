#include "src/acl/holds.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <list>
#include <mutex>
#include <utility>

#include "src/acl/per_process.h"

namespace anabranch::acl {
namespace {

struct Block {
  void* address;
  Range range;
};

struct Registry {
  std::mutex mutex;
  std::condition_variable changed;
  std::list<const Hold*> holds;
  std::list<Block> left;  // freed by their programs, and to be freed when nothing holds them

  bool Held(const Range& range) const {
    return std::any_of(holds.begin(), holds.end(),
                       [&](const Hold* hold) { return hold->Meets(range); });
  }
};

constinit PerProcess<Registry> registry;
// The child of a fork has none of the work that holds memory.
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { registry.Abandon(); });

thread_local bool inside_stream_work = false;

}  // namespace

Range RangeOf(const void* address, std::size_t bytes) {
  const auto low = reinterpret_cast<std::uintptr_t>(address);
  return {low, low + bytes};
}

Range RangeOf(const TensorView& view) {
  if (!view.defined() || view.numel() <= 0) return {};
  std::int64_t low = 0;
  std::int64_t high = 1;
  for (int i = 0; i < view.rank(); ++i) {
    const std::int64_t extent = (view.sizes[i] - 1) * view.strides[i];
    (extent < 0 ? low : high) += extent;
  }
  const auto element = static_cast<std::int64_t>(DTypeSize(view.dtype));
  const auto base = reinterpret_cast<std::uintptr_t>(view.data);
  return {base + static_cast<std::uintptr_t>(low * element),
          base + static_cast<std::uintptr_t>(high * element)};
}

Hold::Hold(std::vector<Range> ranges) : ranges_(std::move(ranges)) {
  Registry& all = registry.Get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.holds.push_back(this);
}

Hold::~Hold() {
  Registry& all = registry.Get();
  std::list<Block> released;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.holds.remove(this);
    for (auto block = all.left.begin(); block != all.left.end();) {
      const auto here = block++;
      if (!all.Held(here->range)) released.splice(released.end(), all.left, here);
    }
  }
  for (const Block& block : released) std::free(block.address);
  all.changed.notify_all();
}

bool Hold::Meets(const Range& range) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& mine) {
    return mine.low < range.high && range.low < mine.high;
  });
}

void FreeWhenReleased(void* block, std::size_t bytes) {
  Registry& all = registry.Get();
  std::list<Block> node = {{block, RangeOf(block, bytes)}};  // made before anything is decided
  {
    std::unique_lock<std::mutex> lock(all.mutex);
    if (inside_stream_work && all.Held(node.front().range)) {
      all.left.splice(all.left.end(), node);
      return;
    }
    all.changed.wait(lock, [&] { return !all.Held(node.front().range); });
  }
  std::free(block);
}

InsideStreamWork::InsideStreamWork() : before_(std::exchange(inside_stream_work, true)) {}
InsideStreamWork::~InsideStreamWork() { inside_stream_work = before_; }

}  // namespace anabranch::acl
