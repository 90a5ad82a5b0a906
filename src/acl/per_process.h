// State that there is once in a process, and anew in a child of fork.
#ifndef ANABRANCH_SRC_ACL_PER_PROCESS_H_
#define ANABRANCH_SRC_ACL_PER_PROCESS_H_

#include <atomic>
#include <memory>

namespace anabranch::acl {

// One T, made on first use and never destroyed, so that it works in exit handlers too. The child of
// a fork has none of its parent's threads, and locks may be held by those: it abandons the parent's
// T with all that hangs on it (streams above all) and makes its own. To be a static variable.
template <class T>
class PerProcess {
 public:
  constexpr PerProcess() = default;

  T& Get() {
    T* now = object_.load(std::memory_order_acquire);
    if (now != nullptr) return *now;
    auto made = std::make_unique<T>();
    if (object_.compare_exchange_strong(now, made.get())) return *made.release();
    return *now;
  }

  // In the child, before anything else.
  void Abandon() noexcept { abandoned_ = object_.exchange(nullptr); }

 private:
  std::atomic<T*> object_{nullptr};
  T* abandoned_ = nullptr;  // so that leak checkers see that it is held
};

}  // namespace anabranch::acl

#endif  // ANABRANCH_SRC_ACL_PER_PROCESS_H_
