// Handles. Every object that a program holds is in one registry, so that a null, foreign, destroyed
// or wrong-type handle is found out without touching the memory it points to.
#ifndef ANABRANCH_SRC_ACL_OBJECT_H_
#define ANABRANCH_SRC_ACL_OBJECT_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace anabranch::acl {

enum class Kind : std::uint8_t {
  kContext,
  kStream,
  kEvent,
  kTensor,
  kTensorList,
  kScalar,
  kScalarList,
  kIntArray,
  kFloatArray,
  kBoolArray,
  kExecutor
};

// Base of everything behind a handle.
struct Object {
  explicit Object(Kind object_kind) : kind(object_kind) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  const Kind kind;
};

class Registry {
 public:
  // Takes the object in and gives its handle: a number that no other object ever gets and that is
  // no address, so that a handle of something destroyed never means something newer.
  void* Add(std::shared_ptr<Object> object);

  // The live object of that kind, or null. What is found stays alive while the pointer is held.
  std::shared_ptr<Object> Find(const void* handle, Kind kind);

  // As Find, and the handle is unknown from now on.
  std::shared_ptr<Object> Remove(const void* handle, Kind kind);

  // Every live object of that kind with its handle.
  std::vector<std::pair<void*, std::shared_ptr<Object>>> All(Kind kind);

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::shared_ptr<Object>> objects_;
};

// The process's one registry; never destroyed, so that handles work in exit handlers too.
Registry& Handles();

template <class T>
std::shared_ptr<T> Find(const void* handle) {
  return std::static_pointer_cast<T>(Handles().Find(handle, T::kKind));
}

template <class T>
std::shared_ptr<T> Remove(const void* handle) {
  return std::static_pointer_cast<T>(Handles().Remove(handle, T::kKind));
}

}  // namespace anabranch::acl

#endif  // ANABRANCH_SRC_ACL_OBJECT_H_
