// `anabranch check`: random awkward calls of every operator against its definition.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "src/tools/commands.h"
#include "src/tools/harness/harness.h"
#include "src/tools/progress.h"

namespace anabranch::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct Tally {
  std::int64_t calls = 0;
  double worst = 0;
  bool ok = true;
};

void CheckOne(const OperatorEntry& entry, const CheckOptions& options, std::int64_t k,
              const std::vector<Target>& targets, Tally* tally, Progress* progress) {
  harness::Random random = CaseRandom(entry, options.seed, k);
  const Case c = harness::RandomCase(entry, random);
  const std::uint64_t values = random.Next();
  const int threads = options.threads > 0 ? options.threads : 1 + static_cast<int>(random.Below(4));
  harness::CaseChecker checker(entry, c, values);
  for (Target target : targets) {
    Context context;
    context.set_target(target).set_threads(threads);
    const harness::Verdict verdict = checker.Check(context);
    ++tally->calls;
    tally->worst = std::max(tally->worst, verdict.worst);
    if (verdict.ok) continue;
    tally->ok = false;
    progress->Clear();
    std::printf(
        "FAILED %s\n  %s\n  reproduce: anabranch check %s --seed %llu --case %lld --target %s "
        "--threads %d\n",
        harness::ToString(entry, c).c_str(), verdict.message.c_str(), entry.name,
        static_cast<unsigned long long>(options.seed), static_cast<long long>(k),
        TargetName(target), threads);
  }
}

Tally CheckOperator(const OperatorEntry& entry, const CheckOptions& options,
                    const std::vector<Target>& targets) {
  Tally tally;
  Progress progress(std::string("check ") + entry.name);
  const auto start = Clock::now();
  if (options.only >= 0) {
    CheckOne(entry, options, options.only, targets, &tally, &progress);
    return tally;
  }
  for (std::int64_t k = 0;; ++k) {
    const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    const double fraction = options.seconds > 0
                                ? elapsed / options.seconds
                                : static_cast<double>(k) / static_cast<double>(options.cases);
    if (fraction >= 1) return tally;
    CheckOne(entry, options, k, targets, &tally, &progress);
    progress.Update(fraction, std::to_string(tally.calls) + " calls");
  }
}

// As tests/golden/digests.txt has it.
int PrintDigests(const std::vector<const OperatorEntry*>& entries, Target target) {
  for (const OperatorEntry* entry : entries) {
    harness::Digest digest;
    const Status status = harness::MakeDigest(*entry, target, &digest);
    if (!status.ok()) throw UsageError{status.message()};
    std::printf("%-28s %016llx %016llx\n", entry->name,
                static_cast<unsigned long long>(digest.inputs),
                static_cast<unsigned long long>(digest.outputs));
  }
  return 0;
}

}  // namespace

harness::Random CaseRandom(const OperatorEntry& entry, std::uint64_t seed, std::int64_t k) {
  std::uint64_t hash = seed * 1000003u + static_cast<std::uint64_t>(k);
  for (const char* c = entry.name; *c != '\0'; ++c) {
    hash = hash * 31u + static_cast<unsigned char>(*c);
  }
  return harness::Random(hash);
}

int Check(const CheckOptions& options) {
  std::vector<Target> targets = SupportedTargets();
  if (const Target one = SelectTarget(options.target); one != Target::kAuto) {
    targets = {one};
  } else if (std::getenv("ANABRANCH_TARGET") != nullptr) {
    targets = {DefaultTarget()};
  }
  const std::vector<const OperatorEntry*> entries = SelectOperators(options.ops);
  if (options.seconds <= 0 && options.cases < 1) {
    throw UsageError{"--cases is " + std::to_string(options.cases) + ", expected at least 1"};
  }
  if (options.threads < 0) {
    throw UsageError{"--threads is " + std::to_string(options.threads) + ", expected at least 1"};
  }
  DefaultTarget();  // the reference runs without a target by name: a wrong ANABRANCH_TARGET is a
                    // wrong request, no failed case
  if (!options.write_cases.empty()) return WriteCases(entries, options);
  if (options.digest)
    return PrintDigests(entries, targets.size() == 1 ? targets[0] : DefaultTarget());
  bool ok = true;
  std::printf("%-28s %8s  %-28s\n", "operator", "calls", "worst error (1 = allowed)");
  for (const OperatorEntry* entry : entries) {
    const Tally tally = CheckOperator(*entry, options, targets);
    ok = ok && tally.ok;
    std::printf("%-28s %8lld  %-8.3f %s\n", entry->name, static_cast<long long>(tally.calls),
                tally.worst, tally.ok ? "ok" : "FAILED");
    std::fflush(stdout);
  }
  std::string names;
  for (Target target : targets)
    names += std::string(names.empty() ? "" : ", ") + TargetName(target);
  std::printf("targets: %s; seed %llu; %s\n", names.c_str(),
              static_cast<unsigned long long>(options.seed), ok ? "all ok" : "FAILED");
  return ok ? 0 : 1;
}

}  // namespace anabranch::tools
