// Caches and threads; the SIMD targets are the simd floor's.
#include "anabranch/cpu.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace anabranch {
namespace {

int AllowedThreads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::int64_t CacheBytes(int name, std::int64_t fallback) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : fallback;
}

// Only to be shown: no reason to fail.
std::string ModelName() try {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    return colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return "";
} catch (...) {
  return "";
}

CpuInfo Read() {
  CpuInfo info;
  info.model = ModelName();
  info.threads = AllowedThreads();
  info.l1d_bytes = CacheBytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10);
  info.l2_bytes = CacheBytes(_SC_LEVEL2_CACHE_SIZE, 512 << 10);
  info.llc_bytes = CacheBytes(_SC_LEVEL3_CACHE_SIZE, info.l2_bytes * info.threads);
  return info;
}

}  // namespace

const CpuInfo& GetCpuInfo() {
  static const CpuInfo info = Read();
  return info;
}

}  // namespace anabranch
