// What anabranch knows about the processor: SIMD targets, caches, threads.
#ifndef ANABRANCH_CPU_H_
#define ANABRANCH_CPU_H_

#include <cstdint>
#include <string>
#include <vector>

#include "anabranch/export.h"
#include "anabranch/status.h"

namespace anabranch {

// Instruction sets that kernels are compiled for. kAuto means the best one that runs here, or the
// one that the environment variable ANABRANCH_TARGET names.
enum class Target : std::uint8_t { kAuto = 0, kAvx512, kAvx2, kNeon, kSse4, kEmu128 };

// "auto", "avx512", "avx2", "neon", "sse4", "emu128".
ANABRANCH_EXPORT const char* TargetName(Target target);

// True for targets with fused multiply-add; these all give the same bits.
ANABRANCH_EXPORT bool TargetHasFma(Target target);

// Targets that are compiled in and that this processor runs, best first; never empty.
ANABRANCH_EXPORT std::vector<Target> SupportedTargets();

// Parses a target name (any case) that this machine supports. kInvalidArgument lists the names.
ANABRANCH_EXPORT Status ParseTarget(const std::string& name, Target* target);

// Turns kAuto into a target (see kAuto) and refuses targets that this machine lacks. `why`, if not
// null, receives a short reason for the choice.
ANABRANCH_EXPORT Status ResolveTarget(Target wanted, Target* target, std::string* why = nullptr);

struct CpuInfo {
  std::string model;           // as the system names it; may be empty
  int threads = 1;             // that this process may run on (affinity mask)
  std::int64_t l1d_bytes = 0;  // of one core; a conservative default where unknown
  std::int64_t l2_bytes = 0;   // of one core
  std::int64_t llc_bytes = 0;  // of the last-level cache, all cores that share it
};

// Read once, on first use.
ANABRANCH_EXPORT const CpuInfo& GetCpuInfo();

}  // namespace anabranch

#endif  // ANABRANCH_CPU_H_
