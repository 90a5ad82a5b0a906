#include "src/tools/harness/guarded.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace anabranch::harness {
namespace {

std::size_t PageBytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

GuardedMemory::GuardedMemory(std::size_t bytes) {
  const std::size_t page = PageBytes();
  if (bytes > PTRDIFF_MAX - 4 * page) throw std::bad_alloc();
  const std::size_t size = (bytes + page - 1) / page * page;
  void* all = mmap(nullptr, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  std::byte* data = static_cast<std::byte*>(all) + page;
  if (size > 0 && mprotect(data, size, PROT_READ | PROT_WRITE) != 0) {
    munmap(all, size + 2 * page);
    throw std::bad_alloc();
  }
  data_ = data;
  size_ = size;
  std::memset(data_, 0xff, size_);
}

GuardedMemory::~GuardedMemory() {
  if (data_ != nullptr) munmap(data_ - PageBytes(), size_ + 2 * PageBytes());
}

GuardedMemory::GuardedMemory(GuardedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

GuardedMemory& GuardedMemory::operator=(GuardedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace anabranch::harness
