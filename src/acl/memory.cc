// Device and host memory (all of it this machine's), copies and fills.
#include <pthread.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "acl/acl_rt.h"
#include "src/acl/context.h"
#include "src/acl/holds.h"
#include "src/acl/message.h"

namespace anabranch::acl {
namespace {

constexpr std::size_t kAlignment = 64;

enum class Place { kDevice, kHost };

struct Blocks {
  std::mutex mutex;
  struct Block {
    Place place;
    std::size_t bytes;
  };
  std::unordered_map<void*, Block> all;
};

Blocks& AllBlocks() {
  static Blocks* const blocks = new Blocks;
  return *blocks;
}

// A child of fork has the memory too and may free it: the list must be whole when the fork happens.
[[maybe_unused]] const int fork_handler = [] {
  AllBlocks();
  const auto unlock = [] { AllBlocks().mutex.unlock(); };
  return pthread_atfork([] { AllBlocks().mutex.lock(); }, unlock, unlock);
}();

int Allocate(const char* call, void** address, std::size_t size, Place place) {
  const std::string who = std::string(call) + ": ";
  if (address == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM, who + (place == Place::kHost ? "hostPtr" : "devPtr") +
                                             " is null, expected an address");
  }
  if (size == 0) return Fail(ACL_ERROR_INVALID_PARAM, who + "size is 0, expected > 0");
  void* block =
      size > PTRDIFF_MAX - kAlignment
          ? nullptr
          : std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  if (block == nullptr) {
    return Fail(ACL_ERROR_RT_MEMORY_ALLOCATION,
                who + "no memory for " + std::to_string(size) + " bytes");
  }
  try {
    Blocks& blocks = AllBlocks();
    const std::lock_guard<std::mutex> lock(blocks.mutex);
    blocks.all.emplace(block, Blocks::Block{place, size});
  } catch (...) {
    std::free(block);
    throw;
  }
  *address = block;
  return ACL_SUCCESS;
}

int Malloc(void** address, std::size_t size, aclrtMemMallocPolicy policy) {
  const int number = static_cast<int>(policy);
  constexpr int kTypes = ACL_MEM_TYPE_LOW_BAND_WIDTH | ACL_MEM_TYPE_HIGH_BAND_WIDTH;
  const int pages = number & ~kTypes;
  if (pages < ACL_MEM_MALLOC_HUGE_FIRST || pages > ACL_MEM_MALLOC_HUGE1G_ONLY_P2P) {
    return Fail(ACL_ERROR_INVALID_PARAM, "aclrtMalloc: policy is " + std::to_string(number) +
                                             ", expected an aclrtMemMallocPolicy");
  }
  return Allocate("aclrtMalloc", address, size, Place::kDevice);
}

int Free(const char* call, void* address, Place place) {
  const std::string from = place == Place::kDevice ? "aclrtMalloc" : "aclrtMallocHost";
  if (address == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM,
                std::string(call) + ": the address is null, expected memory of " + from);
  }
  std::unordered_map<void*, Blocks::Block>::node_type block;
  {
    Blocks& blocks = AllBlocks();
    const std::lock_guard<std::mutex> lock(blocks.mutex);
    const auto found = blocks.all.find(address);
    if (found == blocks.all.end() || found->second.place != place) {
      return Fail(ACL_ERROR_RT_PARAM_INVALID,
                  std::string(call) +
                      ": the address is not allocated (or freed already), expected "
                      "memory of " +
                      from);
    }
    block = blocks.all.extract(found);
  }
  FreeWhenReleased(address, block.mapped().bytes);
  return ACL_SUCCESS;
}

struct Copy {
  const char* call;
  void* to;
  std::size_t most;
  const void* from;
  std::size_t count;
  aclrtMemcpyKind kind;
};

int CheckCopy(const Copy& copy) {
  const std::string who = std::string(copy.call) + ": ";
  const int kind = static_cast<int>(copy.kind);
  if (kind < 0 || kind > ACL_MEMCPY_INTER_DEVICE_TO_DEVICE) {
    return Fail(ACL_ERROR_INVALID_PARAM,
                who + "kind is " + std::to_string(kind) + ", expected an aclrtMemcpyKind");
  }
  if (copy.to == nullptr || copy.from == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM,
                who + (copy.to == nullptr ? "dst" : "src") + " is null, expected an address");
  }
  if (copy.count > copy.most) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                who + "count is " + std::to_string(copy.count) +
                    ", expected at most destMax = " + std::to_string(copy.most));
  }
  return ACL_SUCCESS;
}

int MemcpyAsync(const Copy& copy, aclrtStream handle) {
  if (const int code = CheckCopy(copy); code != 0) return code;
  int code = 0;
  const std::shared_ptr<Stream> stream = FindStream(copy.call, handle, &code);
  if (!stream) return code;
  auto hold = std::make_shared<const Hold>(
      std::vector<Range>{RangeOf(copy.to, copy.count), RangeOf(copy.from, copy.count)});
  stream->Enqueue([copy, hold](const Queue&) {
    std::memmove(copy.to, copy.from, copy.count);
    return Outcome();
  });
  return ACL_SUCCESS;
}

int CheckFill(const char* call, const void* to, std::size_t most, std::size_t count) {
  if (to == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM,
                std::string(call) + ": devPtr is null, expected an address");
  }
  if (count > most) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                std::string(call) + ": count is " + std::to_string(count) +
                    ", expected at most maxCount = " + std::to_string(most));
  }
  return ACL_SUCCESS;
}

int MemsetAsync(void* to, std::size_t most, std::int32_t value, std::size_t count,
                aclrtStream handle) {
  constexpr char kCall[] = "aclrtMemsetAsync";
  if (const int code = CheckFill(kCall, to, most, count); code != 0) return code;
  int code = 0;
  const std::shared_ptr<Stream> stream = FindStream(kCall, handle, &code);
  if (!stream) return code;
  auto hold = std::make_shared<const Hold>(std::vector<Range>{RangeOf(to, count)});
  stream->Enqueue([to, value, count, hold](const Queue&) {
    std::memset(to, value, count);
    return Outcome();
  });
  return ACL_SUCCESS;
}

// Bytes that a line "Name:  123 kB" of /proc/meminfo gives; false if there is none.
bool ReadMemInfo(const std::string& name, std::size_t* bytes) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  std::size_t kilobytes = 0;
  while (file >> word) {
    if (word == name + ":" && file >> kilobytes) {
      *bytes = kilobytes * 1024;
      return true;
    }
    std::getline(file, word);
  }
  return false;
}

int GetMemInfo(aclrtMemAttr attribute, std::size_t* free, std::size_t* total) {
  constexpr char kCall[] = "aclrtGetMemInfo";
  if (free == nullptr || total == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(kCall) + ": " +
                                             (free == nullptr ? "free" : "total") +
                                             " is null, expected an address");
  }
  const int number = static_cast<int>(attribute);
  if (number < ACL_DDR_MEM || number > ACL_HBM_MEM_P2P_NORMAL) {
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(kCall) + ": attr is " +
                                             std::to_string(number) + ", expected an aclrtMemAttr");
  }
  std::size_t available = 0;
  std::size_t all = 0;
  if (!ReadMemInfo("MemAvailable", &available) || !ReadMemInfo("MemTotal", &all)) {
    return Fail(ACL_ERROR_INTERNAL_ERROR,
                std::string(kCall) +
                    ": /proc/meminfo does not tell, expected MemAvailable and "
                    "MemTotal");
  }
  *free = available;
  *total = all;
  return ACL_SUCCESS;
}

}  // namespace
}  // namespace anabranch::acl

namespace acl = anabranch::acl;

extern "C" {

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return acl::Guarded("aclrtMalloc", [&] { return acl::Malloc(devPtr, size, policy); });
}

aclError aclrtFree(void* devPtr) {
  return acl::Guarded("aclrtFree",
                      [&] { return acl::Free("aclrtFree", devPtr, acl::Place::kDevice); });
}

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  return acl::Guarded("aclrtMallocHost", [&] {
    return acl::Allocate("aclrtMallocHost", hostPtr, size, acl::Place::kHost);
  });
}

aclError aclrtFreeHost(void* hostPtr) {
  return acl::Guarded("aclrtFreeHost",
                      [&] { return acl::Free("aclrtFreeHost", hostPtr, acl::Place::kHost); });
}

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                     aclrtMemcpyKind kind) {
  return acl::Guarded("aclrtMemcpy", [&] {
    const int code = acl::CheckCopy({"aclrtMemcpy", dst, destMax, src, count, kind});
    if (code == 0) std::memmove(dst, src, count);
    return code;
  });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                          aclrtMemcpyKind kind, aclrtStream stream) {
  return acl::Guarded("aclrtMemcpyAsync", [&] {
    return acl::MemcpyAsync({"aclrtMemcpyAsync", dst, destMax, src, count, kind}, stream);
  });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  return acl::Guarded("aclrtMemset", [&] {
    const int code = acl::CheckFill("aclrtMemset", devPtr, maxCount, count);
    if (code == 0) std::memset(devPtr, value, count);
    return code;
  });
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                          aclrtStream stream) {
  return acl::Guarded("aclrtMemsetAsync",
                      [&] { return acl::MemsetAsync(devPtr, maxCount, value, count, stream); });
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  return acl::Guarded("aclrtGetMemInfo", [&] { return acl::GetMemInfo(attr, free, total); });
}

}  // extern "C"
