// Initialisation, memory, copies, parameters, half floats.
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_set>

#include "acl/acl.h"
#include "securec.h"
#include "src/acl/message.h"
#include "src/acl/profile.h"
#include "src/core/half.h"

namespace anabranch::acl {
namespace {

// Everything that is one per process.
struct Process {
  std::mutex mutex;
  bool initialised = false;
  bool finalised = false;
  std::map<int, std::int64_t> parameters;
  std::unordered_set<void*> blocks;
};

Process& TheProcess() {
  static Process* const process = new Process;
  return *process;
}

int Init(const char* path) {
  if (FindProfile() == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, UnknownProfile("aclInit"));
  if (path != nullptr && *path != '\0') {
    std::FILE* file = std::fopen(path, "r");
    if (file == nullptr) {
      return Fail(ACL_ERROR_INVALID_PARAM,
                  std::string("aclInit: cannot read ") + path + ", expected a file or null");
    }
    std::fclose(file);
  }
  Process& process = TheProcess();
  const std::lock_guard<std::mutex> lock(process.mutex);
  if (process.initialised) {
    return Fail(ACL_ERROR_REPEAT_INITIALIZE, "aclInit: was called before, expected one call");
  }
  process.initialised = true;
  process.finalised = false;
  return ACL_SUCCESS;
}

int Finalize() {
  Process& process = TheProcess();
  const std::lock_guard<std::mutex> lock(process.mutex);
  if (process.finalised) {
    return Fail(ACL_ERROR_REPEAT_FINALIZE, "aclFinalize: was called before, expected one call");
  }
  process.initialised = false;
  process.finalised = true;
  return ACL_SUCCESS;
}

int Malloc(void** address, std::size_t size, aclrtMemMallocPolicy policy) {
  constexpr char kCall[] = "aclrtMalloc: ";
  if (address == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM,
                std::string(kCall) + "devPtr is null, expected an address");
  }
  if (size == 0)
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(kCall) + "size is 0, expected > 0");
  const int type = static_cast<int>(policy) & 0xff;
  if (static_cast<int>(policy) < 0 || type > ACL_MEM_MALLOC_HUGE1G_ONLY_P2P ||
      (static_cast<int>(policy) & ~0x11ff) != 0) {
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(kCall) + "policy is " +
                                             std::to_string(static_cast<int>(policy)) +
                                             ", expected an aclrtMemMallocPolicy");
  }
  constexpr std::size_t kAlignment = 64;
  void* block =
      size > PTRDIFF_MAX - kAlignment
          ? nullptr
          : std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  if (block == nullptr) {
    return Fail(ACL_ERROR_RT_MEMORY_ALLOCATION,
                std::string(kCall) + "no memory for " + std::to_string(size) + " bytes");
  }
  Process& process = TheProcess();
  const std::lock_guard<std::mutex> lock(process.mutex);
  process.blocks.insert(block);
  *address = block;
  return ACL_SUCCESS;
}

int Free(void* address) {
  if (address == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM,
                "aclrtFree: devPtr is null, expected memory of aclrtMalloc");
  }
  {
    Process& process = TheProcess();
    const std::lock_guard<std::mutex> lock(process.mutex);
    if (process.blocks.erase(address) == 0) {
      return Fail(
          ACL_ERROR_RT_PARAM_INVALID,
          "aclrtFree: devPtr is not allocated (or freed already), expected memory of aclrtMalloc");
    }
  }
  std::free(address);
  return ACL_SUCCESS;
}

int Memcpy(void* to, std::size_t most, const void* from, std::size_t count, aclrtMemcpyKind kind) {
  constexpr char kCall[] = "aclrtMemcpy: ";
  if (static_cast<int>(kind) < 0 || kind > ACL_MEMCPY_INTER_DEVICE_TO_DEVICE) {
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(kCall) + "kind is " +
                                             std::to_string(static_cast<int>(kind)) +
                                             ", expected an aclrtMemcpyKind");
  }
  if (to == nullptr || from == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(kCall) + (to == nullptr ? "dst" : "src") +
                                             " is null, expected an address");
  }
  if (count > most) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                std::string(kCall) + "count is " + std::to_string(count) +
                    ", expected at most destMax = " + std::to_string(most));
  }
  std::memmove(to, from, count);
  return ACL_SUCCESS;
}

int CheckParameter(const char* call, aclSysParamOpt option) {
  if (option >= ACL_OPT_DETERMINISTIC && option <= ACL_OPT_STRONG_CONSISTENCY) return ACL_SUCCESS;
  return Fail(ACL_ERROR_INVALID_PARAM, std::string(call) + ": opt is " +
                                           std::to_string(static_cast<int>(option)) +
                                           ", expected an aclSysParamOpt");
}

}  // namespace
}  // namespace anabranch::acl

namespace acl = anabranch::acl;

extern "C" {

aclError aclInit(const char* configPath) {
  return acl::Guarded("aclInit", [&] { return acl::Init(configPath); });
}

aclError aclFinalize() {
  return acl::Guarded("aclFinalize", [] { return acl::Finalize(); });
}

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return acl::Guarded("aclrtMalloc", [&] { return acl::Malloc(devPtr, size, policy); });
}

aclError aclrtFree(void* devPtr) {
  return acl::Guarded("aclrtFree", [&] { return acl::Free(devPtr); });
}

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                     aclrtMemcpyKind kind) {
  return acl::Guarded("aclrtMemcpy", [&] { return acl::Memcpy(dst, destMax, src, count, kind); });
}

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return acl::Guarded("aclrtSetSysParamOpt", [&] {
    const int code = acl::CheckParameter("aclrtSetSysParamOpt", opt);
    if (code != 0) return code;
    acl::Process& process = acl::TheProcess();
    const std::lock_guard<std::mutex> lock(process.mutex);
    process.parameters[opt] = value;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  return acl::Guarded("aclrtGetSysParamOpt", [&]() -> int {
    const int code = acl::CheckParameter("aclrtGetSysParamOpt", opt);
    if (code != 0) return code;
    if (value == nullptr) {
      return acl::Fail(ACL_ERROR_INVALID_PARAM,
                       "aclrtGetSysParamOpt: value is null, expected an address");
    }
    acl::Process& process = acl::TheProcess();
    const std::lock_guard<std::mutex> lock(process.mutex);
    const auto found = process.parameters.find(opt);
    if (found == process.parameters.end()) {
      return acl::Fail(ACL_ERROR_RT_SYSPARAMOPT_NOT_SET,
                       "aclrtGetSysParamOpt: opt " + std::to_string(static_cast<int>(opt)) +
                           " was never set, expected aclrtSetSysParamOpt before");
    }
    *value = found->second;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetDeviceCount(uint32_t* count) {
  if (count == nullptr) {
    return acl::Fail(ACL_ERROR_INVALID_PARAM,
                     "aclrtGetDeviceCount: count is null, expected an address");
  }
  *count = 1;
  return ACL_SUCCESS;
}

const char* aclrtGetSocName() {
  const acl::Profile* profile = acl::FindProfile();
  return profile != nullptr ? profile->soc : "";
}

float aclFloat16ToFloat(aclFloat16 value) { return anabranch::Float16ToFloat(value); }

aclFloat16 aclFloatToFloat16(float value) {
  if (std::isnan(value) || value >= 65504.0f) return 0x7bff;
  if (value <= -65504.0f) return 0xfbff;
  return anabranch::FloatToFloat16(value);
}

errno_t memmove_s(void* dest, size_t destMax, const void* src, size_t count) {
  if (dest == nullptr || src == nullptr) return EINVAL;
  if (count > destMax) return ERANGE;
  std::memmove(dest, src, count);
  return EOK;
}

errno_t memcpy_s(void* dest, size_t destMax, const void* src, size_t count) {
  return memmove_s(dest, destMax, src, count);
}

errno_t memset_s(void* dest, size_t destMax, int c, size_t count) {
  if (dest == nullptr) return EINVAL;
  if (count > destMax) return ERANGE;
  std::memset(dest, c, count);
  return EOK;
}

errno_t strcpy_s(char* dest, size_t destMax, const char* src) {
  if (dest == nullptr || src == nullptr) return EINVAL;
  return memmove_s(dest, destMax, src, std::strlen(src) + 1);
}

errno_t strcat_s(char* dest, size_t destMax, const char* src) {
  if (dest == nullptr || src == nullptr) return EINVAL;
  const size_t used = strnlen(dest, destMax);
  if (used == destMax) return ERANGE;
  return strcpy_s(dest + used, destMax - used, src);
}

}  // extern "C"
