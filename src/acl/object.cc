#include "src/acl/object.h"

#include <pthread.h>

#include <atomic>
#include <utility>

#include "src/acl/per_process.h"

namespace anabranch::acl {
namespace {

// Bit 62 alone is outside of every user address of x86-64 and AArch64; steps look aligned.
constexpr std::uintptr_t kFirstHandle = std::uintptr_t{1} << 62;
constexpr std::uintptr_t kHandleStep = 64;

// Goes on in the child of a fork: what the parent gave out means nothing there.
constinit std::atomic<std::uintptr_t> next_handle{kFirstHandle};

constinit PerProcess<Registry> registry;
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { registry.Abandon(); });

}  // namespace

void* Registry::Add(std::shared_ptr<Object> object) {
  void* handle = reinterpret_cast<void*>(next_handle += kHandleStep);
  const std::lock_guard<std::mutex> lock(mutex_);
  objects_[handle] = std::move(object);
  return handle;
}

std::shared_ptr<Object> Registry::Find(const void* handle, Kind kind) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = objects_.find(const_cast<void*>(handle));
  return found != objects_.end() && found->second->kind == kind ? found->second : nullptr;
}

std::shared_ptr<Object> Registry::Remove(const void* handle, Kind kind) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = objects_.find(const_cast<void*>(handle));
  if (found == objects_.end() || found->second->kind != kind) return nullptr;
  std::shared_ptr<Object> object = std::move(found->second);
  objects_.erase(found);
  return object;
}

std::vector<std::pair<void*, std::shared_ptr<Object>>> Registry::All(Kind kind) {
  std::vector<std::pair<void*, std::shared_ptr<Object>>> all;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& entry : objects_) {
    if (entry.second->kind == kind) all.emplace_back(entry.first, entry.second);
  }
  return all;
}

Registry& Handles() { return registry.Get(); }

}  // namespace anabranch::acl
