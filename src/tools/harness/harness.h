// Runs catalog entries against their references.
#ifndef ANABRANCH_SRC_TOOLS_HARNESS_HARNESS_H_
#define ANABRANCH_SRC_TOOLS_HARNESS_HARNESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "src/ops/catalog.h"
#include "src/tools/harness/tensors.h"

namespace anabranch::harness {

// What came of a comparison. `worst` is the largest error as a fraction of what is allowed.
struct Verdict {
  bool ok = true;
  double worst = 0;
  std::string message;  // the first failure: tensor, element, got, wanted

  void Fail(const std::string& text);
};

// A case within the operator's limits with awkward sizes (around the vector widths, 1, 0 tokens).
// About `max_elements` elements in the largest tensor.
Case RandomCase(const OperatorEntry& entry, Random& random, std::int64_t max_elements = 20000);

// "seq=3 n=4 d=17 ... dtype=bfloat16 variant='no h_res'".
std::string ToString(const OperatorEntry& entry, const Case& c);

// Prepares and runs. Also fails if the plan ran on another target than the context asked for.
Status RunCase(const OperatorEntry& entry, const Case& c, const CaseTensors& tensors,
               const Context& context);

// Outputs of `got` against those of the double-precision `want`. NaN must meet NaN, infinity the
// same infinity.
Verdict CompareOutputs(const CaseTensors& got, const CaseTensors& want);

// One call in an awkward layout, checked in every way, on as many targets as one likes.
class CaseChecker {
 public:
  // Makes the tensors and runs the reference. `layout` is kAwkward but for tests of their own.
  CaseChecker(const OperatorEntry& entry, const Case& c, std::uint64_t seed,
              Layout layout = Layout::kAwkward);

  // Runs the call on poisoned outputs and checks it: against the reference, nothing written outside
  // the outputs, every output element written, inputs unchanged, the bits of a dense copy of the
  // call on one thread, and the bits of the target checked first: among those with FMA, and among
  // those without.
  Verdict Check(const Context& context);

  // As they stand. After changing inputs call Recompute: the forward's caches and the reference.
  const CaseTensors& tensors() const { return tensors_; }
  void Recompute();

 private:
  void RunReference();
  void CheckMemory(const std::vector<std::vector<std::byte>>& before, Verdict* verdict) const;
  void CheckDenseCopy(const Context& context, Verdict* verdict) const;
  void CheckOtherTargets(const Context& context, Verdict* verdict);

  const OperatorEntry& entry_;
  const Case case_;
  CaseTensors tensors_;
  CaseTensors want_;
  Status reference_;
  // Of the outputs, from the first target without and the first target with FMA.
  std::vector<std::string> bits_[2];
};

// Hashes of the bits of a fixed series of calls: the same on every machine for every target with
// FMA. That of the inputs tells a difference in making them from one in computing with them.
struct Digest {
  std::uint64_t inputs = 0xcbf29ce484222325u;
  std::uint64_t outputs = 0xcbf29ce484222325u;
};
Status MakeDigest(const OperatorEntry& entry, Target target, Digest* digest);

// CaseChecker for one context.
Verdict CheckCase(const OperatorEntry& entry, const Case& c, std::uint64_t seed,
                  const Context& context);

// A backward's reference against central differences of its forward's reference (both in double).
// The error is relative to the largest gradient of the tensor; ok below `tolerance`.
Verdict CheckGradient(const OperatorEntry& backward, const Case& c, std::uint64_t seed,
                      double tolerance = 1e-6);

}  // namespace anabranch::harness

#endif  // ANABRANCH_SRC_TOOLS_HARNESS_HARNESS_H_
