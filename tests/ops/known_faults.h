// Kinds of faults that implementations of such operators have had, each looked for in every
// operator of the table: the fixture of the tests. docs/differential.md lists them.
#ifndef ANABRANCH_TESTS_OPS_KNOWN_FAULTS_H_
#define ANABRANCH_TESTS_OPS_KNOWN_FAULTS_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/tools/harness/harness.h"

namespace anabranch {

inline constexpr std::int64_t kTokens = 11;  // a size that nothing else in the cases below has

inline std::vector<std::string> OperatorNames() {
  std::vector<std::string> names;
  for (const OperatorEntry& entry : Operators()) names.push_back(entry.name);
  return names;
}

class KnownFaults : public testing::TestWithParam<std::string> {
 protected:
  const OperatorEntry& entry() const { return *FindOperator(GetParam()); }

  Case Small(std::int64_t tokens = kTokens) const {
    Case c;
    c.seq = tokens;
    c.n = entry().supports(Case{.n = 4, .sources = 3}) ? 4 : 3;
    c.d = 37;
    c.sources = 3;
    c.num_iters = 3;
    c.dtype = DType::kBFloat16;
    if (!entry().supports(c)) c.dtype = DType::kFloat32;
    while (!entry().supports(c)) ++c.variant;
    return c;
  }

  // The variants of a case that the operator has.
  std::vector<Case> Variants(Case c) const {
    std::vector<Case> cases;
    for (std::size_t v = 0; v < entry().variants.size(); ++v) {
      c.variant = static_cast<int>(v);
      if (entry().supports(c)) cases.push_back(c);
    }
    return cases;
  }

  void Check(const Case& c, harness::Layout layout = harness::Layout::kAwkward,
             int threads = 3) const {
    harness::CaseChecker checker(entry(), c, 77, layout);
    CheckWith(checker, c, threads);
  }

  void CheckWith(harness::CaseChecker& checker, const Case& c, int threads = 3) const {
    for (Target target : SupportedTargets()) {
      const harness::Verdict verdict =
          checker.Check(Context().set_target(target).set_threads(threads));
      ASSERT_TRUE(verdict.ok) << TargetName(target) << " " << harness::ToString(entry(), c) << "\n"
                              << verdict.message;
    }
  }
};

// The dimension that counts tokens in a case of kTokens tokens, or -1.
inline int TokenDimension(const TensorView& view) {
  for (int i = 0; i < view.rank(); ++i) {
    if (view.sizes[i] == kTokens) return i;
  }
  return -1;
}

inline TensorView OneToken(TensorView view, std::int64_t token) {
  const int i = TokenDimension(view);
  if (i < 0) return view;
  const auto element = static_cast<std::int64_t>(DTypeSize(view.dtype));
  view.data = static_cast<std::byte*>(view.data) + token * view.strides[i] * element;
  view.sizes[i] = 1;
  return view;
}

// Writes one value into a token's rows of everything that is given by token, or of the first such.
inline void SetToken(const OperatorEntry& entry, const Case& c, const harness::CaseTensors& tensors,
                     std::int64_t token, double value, bool first_only) {
  for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
    const TensorView& view = tensors.buffers[k].view;
    const bool input = !tensors.specs[k].output && !harness::IsCache(entry, c, tensors.specs[k]);
    if (!input || TokenDimension(view) < 0) continue;
    harness::ForEachElement(OneToken(view, token),
                            [&](std::byte* p) { harness::WriteElement(p, view.dtype, value); });
    if (first_only) return;
  }
}

// Every FP32 input of the call that counts at all counts beyond 16 bits: values that BF16 and FP16
// round to the same numbers give other outputs. `run` computes once more and returns the outputs'
// bits. Returns how many inputs count; their values are as before in the end.
template <class Run>
int ExpectCoefficientsCount(const harness::CaseTensors& tensors, const Run& run,
                            const std::string& what) {
  int compared = 0;
  for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
    const TensorView& view = tensors.buffers[k].view;
    if (tensors.specs[k].output || view.dtype != DType::kFloat32) continue;
    const std::vector<double> values = harness::ReadAll(view);
    const auto run_with = [&](double factor) {
      std::vector<double> changed;
      for (double value : values) {
        const float narrow = ToFloat(ToBFloat16(static_cast<float>(value)));
        changed.push_back(static_cast<double>(narrow) * factor);
      }
      harness::WriteAll(view, changed);
      return run();
    };
    const std::string rounded = run_with(1);
    if (run_with(1.5) != rounded) {  // an absent form's input may count for nothing
      ++compared;
      EXPECT_NE(run_with(1 + 0x1.fp-13), rounded) << tensors.specs[k].name << " " << what;
    }
    harness::WriteAll(view, values);
  }
  return compared;
}

}  // namespace anabranch

#endif  // ANABRANCH_TESTS_OPS_KNOWN_FAULTS_H_
