// `anabranch info`, `anabranch support-table`, and the look-ups that the commands share.
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "src/tools/commands.h"

namespace anabranch::tools {
namespace {

std::string Join(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

std::vector<std::string> TargetNames() {
  std::vector<std::string> names;
  for (Target target : SupportedTargets()) names.emplace_back(TargetName(target));
  return names;
}

std::vector<std::string> ActivationNames() {
  return {DTypeName(DType::kBFloat16), DTypeName(DType::kFloat16), DTypeName(DType::kFloat32),
          DTypeName(DType::kFloat64)};
}

// Streams that the variants first .. last - 1 of an operator take, "1..16"; empty: none.
std::string StreamRange(const OperatorEntry& entry, std::size_t first, std::size_t last) {
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (std::int64_t n = 1; n <= 32; ++n) {
    for (std::size_t v = first; v < last; ++v) {
      Case c;
      c.n = n;
      c.variant = static_cast<int>(v);
      if (!entry.supports(c)) continue;
      if (low == 0) low = n;
      high = n;
    }
  }
  if (low == 0) return "";
  return high == 32 ? "any" : std::to_string(low) + ".." + std::to_string(high);
}

}  // namespace

int Info(const InfoOptions& options) {
  const CpuInfo& cpu = GetCpuInfo();
  std::string why;
  const Target chosen = DefaultTarget(&why);
  if (options.json) {
    nlohmann::json json = {
        {"version", ANABRANCH_VERSION}, {"cpu", cpu.model},         {"targets", TargetNames()},
        {"target", TargetName(chosen)}, {"target_why", why},        {"threads", cpu.threads},
        {"l1d_bytes", cpu.l1d_bytes},   {"l2_bytes", cpu.l2_bytes}, {"llc_bytes", cpu.llc_bytes},
        {"dtypes", ActivationNames()}};
    for (const OperatorEntry& entry : Operators()) {
      json["operators"].push_back({{"name", entry.name},
                                   {"summary", entry.summary},
                                   {"streams", StreamRange(entry, 0, entry.variants.size())},
                                   {"variants", entry.variants}});
    }
    std::printf("%s\n", json.dump(2).c_str());
    return 0;
  }
  std::printf("anabranch  %s\n", ANABRANCH_VERSION);
  std::printf("processor  %s\n", cpu.model.empty() ? "unknown" : cpu.model.c_str());
  std::printf("targets    %s\n", Join(TargetNames(), ", ").c_str());
  std::printf("target     %s (%s)\n", TargetName(chosen), why.c_str());
  std::printf("threads    %d\n", cpu.threads);
  std::printf("caches     L1d %lld KiB, L2 %lld KiB, last level %lld KiB\n",
              static_cast<long long>(cpu.l1d_bytes >> 10),
              static_cast<long long>(cpu.l2_bytes >> 10),
              static_cast<long long>(cpu.llc_bytes >> 10));
  std::printf("dtypes     %s (float64: the reference)\n", Join(ActivationNames(), ", ").c_str());
  std::printf("operators\n");
  for (const OperatorEntry& entry : Operators()) {
    const std::vector<std::string> variants(entry.variants.begin(), entry.variants.end());
    std::printf("  %-28s %s\n  %-28s forms: %s\n", entry.name, entry.summary, "",
                Join(variants, "; ").c_str());
  }
  return 0;
}

int SupportTable() {
  std::printf("| operator | form | streams n | C++ | C | PyTorch |\n");
  std::printf("|---|---|---|---|---|---|\n");
  const auto mark = [](bool there) { return there ? "yes" : "-"; };
  for (const OperatorEntry& entry : Operators()) {
    for (std::size_t v = 0; v < entry.variants.size(); ++v) {
      const std::string streams = StreamRange(entry, v, v + 1);
      if (streams.empty()) continue;  // its forward's alone
      Case c;
      c.variant = static_cast<int>(v);
      std::printf("| `%s` | `%s` | %s | yes | %s | %s |\n", entry.name, entry.variants[v],
                  streams.c_str(), mark(InC(entry, c)), mark(InPyTorch(entry, c)));
    }
  }
  return 0;
}

std::vector<const OperatorEntry*> SelectOperators(const std::vector<std::string>& names,
                                                  const std::string& pass) {
  if (pass != "both" && pass != "forward" && pass != "backward") {
    throw UsageError{"--pass is \"" + pass + "\", expected forward, backward or both"};
  }
  std::vector<const OperatorEntry*> selected;
  const auto wanted = [&](const OperatorEntry& entry) {
    return pass == "both" || pass == entry.pass;
  };
  if (names.empty()) {
    for (const OperatorEntry& entry : Operators()) {
      if (wanted(entry)) selected.push_back(&entry);
    }
  }
  for (const std::string& name : names) {
    bool known = false;
    for (const OperatorEntry& entry : Operators()) {
      const bool exact = name == entry.name && name != entry.op;
      if (!exact && name != entry.op) continue;
      known = true;
      if (exact || wanted(entry)) selected.push_back(&entry);
    }
    if (!known) {
      std::vector<std::string> all;
      for (const OperatorEntry& entry : Operators()) all.emplace_back(entry.name);
      throw UsageError{"unknown operator \"" + name + "\", expected one of: " + Join(all, ", ")};
    }
  }
  return selected;
}

Target DefaultTarget(std::string* why) {
  Target target = Target::kAuto;
  if (Status status = ResolveTarget(Target::kAuto, &target, why); !status.ok()) {
    throw UsageError{status.message()};
  }
  return target;
}

Target SelectTarget(const std::string& name) {
  Target target = Target::kAuto;
  if (name.empty()) return target;
  if (Status status = ParseTarget(name, &target); !status.ok()) throw UsageError{status.message()};
  return target;
}

}  // namespace anabranch::tools
