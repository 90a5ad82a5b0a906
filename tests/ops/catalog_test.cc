// What must hold for every operator of the table.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "src/tools/harness/harness.h"
#include "tests/words.h"

namespace anabranch {
namespace {

using harness::Bits;
using harness::CaseTensors;
using harness::Layout;
using harness::Random;
using harness::Verdict;

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const OperatorEntry& entry : Operators()) names.push_back(entry.name);
  return names;
}

class EveryOperator : public testing::TestWithParam<std::string> {
 protected:
  const OperatorEntry& entry() const { return *FindOperator(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Table, EveryOperator, testing::ValuesIn(Names()),
                         [](const auto& param_info) { return param_info.param; });

// Random awkward calls on every target that this machine has; the checker fails a case that ran on
// another target than the one asked for, and one whose bits differ between targets with FMA.
TEST_P(EveryOperator, AgreesWithTheReferenceAndOtherTargetsOnEveryTarget) {
  Random random(11);
  for (int k = 0; k < 80; ++k) {
    const Case c = harness::RandomCase(entry(), random);
    harness::CaseChecker checker(entry(), c, random.Next());
    const int threads = 1 + static_cast<int>(random.Below(4));
    for (Target target : SupportedTargets()) {
      const Verdict verdict = checker.Check(Context().set_target(target).set_threads(threads));
      ASSERT_TRUE(verdict.ok) << TargetName(target) << " " << harness::ToString(entry(), c) << "\n"
                              << verdict.message;
    }
  }
}

// The bits that every machine gives, whatever its vectors: see docs/differential.md.
TEST_P(EveryOperator, HasTheGoldenBitsOnEveryTargetWithFma) {
  std::ifstream file(ANABRANCH_GOLDEN_DIGESTS);
  std::string name;
  std::string inputs;
  std::string outputs;
  while (file >> name >> inputs >> outputs && name != entry().name) {
  }
  ASSERT_EQ(name, entry().name) << "not in " << ANABRANCH_GOLDEN_DIGESTS;
  int compared = 0;
  for (Target target : SupportedTargets()) {
    if (!TargetHasFma(target)) continue;
    harness::Digest digest;
    const Status status = harness::MakeDigest(entry(), target, &digest);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(digest.inputs, std::stoull(inputs, nullptr, 16)) << "other inputs were made";
    EXPECT_EQ(digest.outputs, std::stoull(outputs, nullptr, 16)) << TargetName(target);
    ++compared;
  }
  if (compared == 0) GTEST_SKIP() << "this machine has no target with FMA";
}

// Enough tokens that several threads take part; thread counts beyond the machine's included.
TEST_P(EveryOperator, HasTheSameBitsForEveryNumberOfThreads) {
  Random random(13);
  for (int k = 0; k < 4; ++k) {
    Case c = harness::RandomCase(entry(), random);
    c.batch = 3;
    c.seq = 150 + 37 * k;
    c.d = std::min<std::int64_t>(c.d, 300) + 40;
    c.n = std::min<std::int64_t>(c.n, 5);
    c.sources = std::min<std::int64_t>(c.sources, 5);
    if (!entry().supports(c)) continue;
    CaseTensors first = Allocate(entry(), c, Layout::kDense, random);
    FillInputs(entry(), c, first, random);
    ASSERT_TRUE(RunCase(entry(), c, first, Context().set_threads(1)).ok());
    for (int threads : {2, 3, 7, 64}) {
      CaseTensors other = Dense(entry(), c, first);
      ASSERT_TRUE(RunCase(entry(), c, other, Context().set_threads(threads)).ok());
      for (std::size_t t = 0; t < first.specs.size(); ++t) {
        if (!first.specs[t].output) continue;
        EXPECT_EQ(Bits(first.buffers[t].view), Bits(other.buffers[t].view))
            << first.specs[t].name << " with " << threads << " threads";
      }
    }
  }
}

TEST_P(EveryOperator, GradientsAgreeWithCentralDifferences) {
  if (std::string(entry().pass) != "backward") GTEST_SKIP() << "a forward";
  Random random(14);
  for (std::size_t v = 0; v < entry().variants.size(); ++v) {
    for (double scale : {1.0, 3.0, 10.0}) {
      Case c;
      c.seq = 2;
      c.d = 5;
      c.n = 3;
      c.sources = 3;
      c.num_iters = 4;
      c.variant = static_cast<int>(v);
      c.logit_scale = scale;
      if (!entry().supports(c)) continue;
      const Verdict verdict = harness::CheckGradient(entry(), c, random.Next());
      EXPECT_TRUE(verdict.ok) << harness::ToString(entry(), c) << "\n" << verdict.message;
    }
  }
}

// Absent tensors, null addresses and wrong dtypes of each argument are refused by name.
TEST_P(EveryOperator, RefusesBadTensorsByName) {
  Random random(15);
  Case c;
  c.seq = 3;
  c.d = 8;
  CaseTensors tensors = Allocate(entry(), c, Layout::kDense, random);
  FillInputs(entry(), c, tensors, random);
  const std::vector<TensorView> good = tensors.Views();
  Plan plan;
  ASSERT_TRUE(entry().prepare(c, good, &plan, Context()).ok());
  for (std::size_t t = 0; t < good.size(); ++t) {
    const std::string& name = tensors.specs[t].name;
    const auto refused = [&](const TensorView& bad, const char* what) {
      std::vector<TensorView> views = good;
      views[t] = bad;
      const Status status = entry().prepare(c, views, &plan, Context());
      EXPECT_FALSE(status.ok()) << name << ": " << what;
      EXPECT_EQ(status.message().rfind(std::string(entry().name) + ": ", 0), 0u)
          << status.message();
      EXPECT_TRUE(HasWords(status.message(), name)) << what << ": " << status.message();
    };
    TensorView bad = good[t];
    bad.data = nullptr;
    refused(bad, "null address");
    bad = good[t];
    bad.dtype = DType::kFloat64;
    if (name != "x" && t != 0) refused(bad, "float64 beside others");
    bad = good[t];
    --bad.strides.rank;
    refused(bad, "rank and strides disagree");
    bad = good[t];
    for (int i = 0; i < bad.rank(); ++i) bad.strides[i] = std::numeric_limits<std::int64_t>::max();
    if (bad.numel() > 1) refused(bad, "strides beyond the address space");
    bad = good[t];
    bad.data = static_cast<std::byte*>(bad.data) + 1;
    refused(bad, "misaligned element");
    if (tensors.specs[t].output && bad.numel() > 1) {
      bad = good[t];
      bad.strides = Dims();
      for (int i = 0; i < bad.rank(); ++i) bad.strides.push_back(0);
      refused(bad, "expanded output");
    }
  }
}

}  // namespace
}  // namespace anabranch
