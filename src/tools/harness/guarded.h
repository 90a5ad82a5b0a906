// Memory between two pages that nobody may touch: one byte too far is a signal, not luck.
#ifndef ANABRANCH_SRC_TOOLS_HARNESS_GUARDED_H_
#define ANABRANCH_SRC_TOOLS_HARNESS_GUARDED_H_

#include <cstddef>
#include <span>

namespace anabranch::harness {

// Whole pages, at least `bytes` long, filled with 0xff (a NaN in every dtype), with a page without
// access right before and right behind. Movable; throws std::bad_alloc.
class GuardedMemory {
 public:
  GuardedMemory() = default;
  explicit GuardedMemory(std::size_t bytes);
  ~GuardedMemory();
  GuardedMemory(GuardedMemory&& other) noexcept;
  GuardedMemory& operator=(GuardedMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;  // first accessible byte
  std::size_t size_ = 0;       // accessible bytes
};

}  // namespace anabranch::harness

#endif  // ANABRANCH_SRC_TOOLS_HARNESS_GUARDED_H_
