#include "src/acl/object.h"

#include <utility>

namespace anabranch::acl {

void* Registry::Add(std::shared_ptr<Object> object) {
  void* handle = object.get();
  const std::lock_guard<std::mutex> lock(mutex_);
  objects_[handle] = std::move(object);
  return handle;
}

std::shared_ptr<Object> Registry::Find(const void* handle, Kind kind) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = objects_.find(handle);
  return found != objects_.end() && found->second->kind == kind ? found->second : nullptr;
}

std::shared_ptr<Object> Registry::Remove(const void* handle, Kind kind) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = objects_.find(handle);
  if (found == objects_.end() || found->second->kind != kind) return nullptr;
  std::shared_ptr<Object> object = std::move(found->second);
  objects_.erase(found);
  return object;
}

Registry& Handles() {
  static Registry* const registry = new Registry;
  return *registry;
}

}  // namespace anabranch::acl
