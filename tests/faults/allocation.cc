#include "tests/faults/allocation.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ANABRANCH_OWN_MALLOC 0  // the sanitizer has it
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ANABRANCH_OWN_MALLOC 0
#endif
#endif
#ifndef ANABRANCH_OWN_MALLOC
#define ANABRANCH_OWN_MALLOC 1
#endif

namespace anabranch::faults {
namespace {

constinit std::atomic<bool> armed{false};
constinit std::atomic<bool> any_failed{false};
constinit std::atomic<std::int64_t> count{0};
constinit std::atomic<std::int64_t> first{0};
constinit std::atomic<bool> all_from{false};
constinit std::atomic<std::size_t> most{0};
constinit std::atomic<std::int64_t> live{0};

// Whether this allocation is to fail.
bool Fails(std::size_t bytes) {
  if (!armed.load(std::memory_order_relaxed)) return false;
  std::size_t largest = most.load();
  while (largest < bytes && !most.compare_exchange_weak(largest, bytes)) {
  }
  const std::int64_t k = count.fetch_add(1) + 1;
  const bool fails = first != 0 && (all_from ? k >= first : k == first);
  if (fails) any_failed = true;
  return fails;
}

}  // namespace

FailingAllocations::FailingAllocations(std::int64_t k, Mode mode) {
  count = 0;
  most = 0;
  first = k;
  all_from = mode == Mode::kAllFrom;
  any_failed = false;
  armed = true;
}

FailingAllocations::~FailingAllocations() { armed = false; }

std::int64_t FailingAllocations::calls() const { return count; }
bool FailingAllocations::failed() const { return any_failed; }
std::size_t FailingAllocations::largest() const { return most; }

std::int64_t LiveBlocks() { return live; }

}  // namespace anabranch::faults

#if ANABRANCH_OWN_MALLOC
// What glibc calls its allocator by; the names below replace malloc and its kin for every library
// of the process.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  if (!anabranch::faults::Fails(bytes)) return __libc_malloc(bytes);
  errno = ENOMEM;
  return nullptr;
}

void* calloc(std::size_t number, std::size_t bytes) {
  if (!anabranch::faults::Fails(number * bytes)) return __libc_calloc(number, bytes);
  errno = ENOMEM;
  return nullptr;
}

void* realloc(void* old, std::size_t bytes) {
  if (!anabranch::faults::Fails(bytes)) return __libc_realloc(old, bytes);
  errno = ENOMEM;
  return nullptr;
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  if (!anabranch::faults::Fails(bytes)) return __libc_memalign(alignment, bytes);
  errno = ENOMEM;
  return nullptr;
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) {
  void* block = memalign(alignment, bytes);
  if (block == nullptr) return ENOMEM;
  *result = block;
  return 0;
}
}
#endif

namespace {

// Below, operator new counts once: malloc counts for it where malloc is ours.
void* Take(std::size_t bytes, std::size_t alignment) noexcept {
#if !ANABRANCH_OWN_MALLOC
  if (anabranch::faults::Fails(bytes)) return nullptr;
#endif
  void* block = nullptr;
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) {
    block = std::malloc(bytes);
  } else if (posix_memalign(&block, alignment, bytes) != 0) {
    block = nullptr;
  }
  if (block != nullptr) ++anabranch::faults::live;
  return block;
}

void* TakeOrThrow(std::size_t bytes, std::size_t alignment) {
  void* block = Take(bytes, alignment);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void Give(void* block) noexcept {
  if (block == nullptr) return;
  --anabranch::faults::live;
  std::free(block);
}

}  // namespace

void* operator new(std::size_t bytes) { return TakeOrThrow(bytes, 1); }
void* operator new[](std::size_t bytes) { return TakeOrThrow(bytes, 1); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return Take(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return Take(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return TakeOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return TakeOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Take(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
  return Take(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept { Give(block); }
void operator delete[](void* block) noexcept { Give(block); }
void operator delete(void* block, std::size_t) noexcept { Give(block); }
void operator delete[](void* block, std::size_t) noexcept { Give(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { Give(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { Give(block); }
void operator delete(void* block, std::align_val_t) noexcept { Give(block); }
void operator delete[](void* block, std::align_val_t) noexcept { Give(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { Give(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { Give(block); }
void operator delete(void* block, std::align_val_t, const std::nothrow_t&) noexcept { Give(block); }
void operator delete[](void* block, std::align_val_t, const std::nothrow_t&) noexcept {
  Give(block);
}
