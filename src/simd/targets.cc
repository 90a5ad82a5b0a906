// Which SIMD targets are compiled in and run here, and how one is chosen.
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "anabranch/cpu.h"
#include "src/core/resolve_target.h"
#include "src/simd/dispatch.h"

namespace anabranch {
namespace {

constexpr Target kBestFirst[] = {Target::kAvx512, Target::kAvx2, Target::kNeon, Target::kSse4,
                                 Target::kEmu128};

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// What ANABRANCH_TARGET asks for, read once.
struct Forced {
  Target target = Target::kAuto;
  Status status;
};

Forced ReadEnvironment() {
  Forced forced;
  const char* name = std::getenv("ANABRANCH_TARGET");
  if (name == nullptr || *name == '\0') return forced;
  forced.status = ParseTarget(name, &forced.target);
  if (!forced.status.ok()) {
    forced.status = Status(forced.status.code(), "ANABRANCH_TARGET: " + forced.status.message());
  }
  return forced;
}

}  // namespace

const char* TargetName(Target target) {
  switch (target) {
    case Target::kAuto:
      return "auto";
    case Target::kAvx512:
      return "avx512";
    case Target::kAvx2:
      return "avx2";
    case Target::kNeon:
      return "neon";
    case Target::kSse4:
      return "sse4";
    case Target::kEmu128:
      return "emu128";
  }
  return "invalid";
}

bool TargetHasFma(Target target) {
  return target == Target::kAvx512 || target == Target::kAvx2 || target == Target::kNeon;
}

std::vector<Target> SupportedTargets() {
  const std::int64_t mask = (hwy::SupportedTargets() | HWY_EMU128) & HWY_TARGETS;
  std::vector<Target> targets;
  for (Target target : kBestFirst) {
    const bool real = target == Target::kEmu128 || HwyBit(target) != HWY_EMU128;
    if (real && (HwyBit(target) & mask) != 0) targets.push_back(target);
  }
  return targets;
}

Status ParseTarget(const std::string& name, Target* target) {
  std::string names;
  for (Target candidate : SupportedTargets()) {
    if (Lower(name) == TargetName(candidate)) {
      *target = candidate;
      return Status();
    }
    names += names.empty() ? "" : ", ";
    names += TargetName(candidate);
  }
  return Status(
      StatusCode::kInvalidArgument,
      "target \"" + name + "\" is unknown or not supported here, expected one of: " + names);
}

Status ResolveTarget(Target wanted, Target* target, const char** why) {
  static const Forced forced = ReadEnvironment();
  static const std::vector<Target> supported = SupportedTargets();
  if (wanted != Target::kAuto) {
    if (std::find(supported.begin(), supported.end(), wanted) == supported.end()) {
      return ParseTarget(TargetName(wanted), target);
    }
    *target = wanted;
    *why = "set in the context";
    return Status();
  }
  if (!forced.status.ok()) return forced.status;
  const bool by_name = forced.target != Target::kAuto;
  *target = by_name ? forced.target : supported.front();
  *why = by_name ? "named by ANABRANCH_TARGET" : "best one that runs here";
  return Status();
}

Status ResolveTarget(Target wanted, Target* target, std::string* why) {
  const char* literal = "";
  Status status = ResolveTarget(wanted, target, &literal);
  if (status.ok() && why != nullptr) *why = literal;
  return status;
}

}  // namespace anabranch
