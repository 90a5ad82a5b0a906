// Coefficients rounded to 16 bit on the way in, results rounded to 16 bit on the way out, and the
// residual matrix transposed, looked for in every operator.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/ops/known_faults.h"

namespace anabranch {
namespace {

using harness::CaseTensors;
using harness::Layout;
using harness::OutputBits;
using harness::Random;

// Every FP32 input that counts at all counts beyond 16 bits, beside BF16 activations too.
TEST_P(KnownFaults, CoefficientsCountBeyond16Bits) {
  int compared = 0;
  for (const Case& c : Variants(Small())) {
    Random random(93);
    const CaseTensors tensors = [&] {
      CaseTensors filled = Allocate(entry(), c, Layout::kDense, random);
      FillInputs(entry(), c, filled, random);
      return filled;
    }();
    for (Target target : SupportedTargets()) {
      const auto run = [&] {
        const Status status = RunCase(entry(), c, tensors, Context().set_target(target));
        EXPECT_TRUE(status.ok()) << status.message();
        return OutputBits(tensors);
      };
      compared += ExpectCoefficientsCount(tensors, run, harness::ToString(entry(), c));
    }
  }
  EXPECT_GT(compared, 0);
}

// An FP32 output holds numbers that 16 bits do not.
TEST_P(KnownFaults, ResultsAreNotRoundedTo16Bits) {
  for (const Case& c : Variants(Small())) {
    Random random(94);
    CaseTensors tensors = Allocate(entry(), c, Layout::kDense, random);
    FillInputs(entry(), c, tensors, random);
    for (Target target : SupportedTargets()) {
      ASSERT_TRUE(RunCase(entry(), c, tensors, Context().set_target(target)).ok());
      for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
        const TensorView& view = tensors.buffers[k].view;
        if (!tensors.specs[k].output || view.dtype != DType::kFloat32) continue;
        bool constant = true;  // gradients of what a form does not use, statistics it does not need
        bool longer = false;
        for (double value : harness::ReadAll(view)) {
          const auto single = static_cast<float>(value);
          std::uint32_t bits;
          std::memcpy(&bits, &single, sizeof(bits));
          constant = constant && (single == 0 || single == 1);
          longer = longer || (bits & 0x1fffu) != 0;  // FP16 has 13 bits fewer, BF16 16
        }
        EXPECT_TRUE(constant || longer) << tensors.specs[k].name << " " << TargetName(target) << " "
                                        << harness::ToString(entry(), c);
      }
    }
  }
}

// The first index of the residual matrix is the stream that is read, the second the one that is
// written; logits are normalised along the second first, and along the first last.
class Orientation : public testing::Test {
 protected:
  static constexpr std::int64_t kN = 3;

  // Makes a call of one token with zeros in all inputs.
  void Make(const char* op, const char* variant) {
    entry_ = FindOperator(op);
    ASSERT_NE(entry_, nullptr);
    case_.n = kN;
    case_.d = 2;
    case_.num_iters = 1;
    while (std::string(entry_->variants.at(static_cast<std::size_t>(case_.variant))) != variant) {
      ++case_.variant;
    }
    Random random(95);
    tensors_ = Allocate(*entry_, case_, Layout::kDense, random);
    for (std::size_t k = 0; k < tensors_.specs.size(); ++k) {
      harness::WriteAll(
          tensors_.buffers[k].view,
          std::vector<double>(static_cast<std::size_t>(tensors_.buffers[k].view.numel())));
    }
  }
  void Set(const char* name, std::vector<double> values) {
    harness::WriteAll(tensors_.View(name), values);
  }
  void Run() { ASSERT_TRUE(RunCase(*entry_, case_, tensors_, Context()).ok()); }
  std::vector<double> Get(const char* name) { return harness::ReadAll(tensors_.View(name)); }

  const OperatorEntry* entry_ = nullptr;
  Case case_;
  CaseTensors tensors_;
};

using Values = std::vector<double>;
const Values kFromZeroToOne = {0, 1, 0, 0, 0, 0, 0, 0, 0};  // [0][1] of a 3 x 3 matrix

TEST_F(Orientation, OfMhcPost) {
  Make("mhc_post", "h_res [*,n,n]");
  Set("x", {1, 2, 3, 4, 5, 6});
  Set("h_res", kFromZeroToOne);
  Run();
  EXPECT_EQ(Get("y"), Values({0, 0, 1, 2, 0, 0}));  // stream 0 went to stream 1
}

TEST_F(Orientation, OfMhcPostBackward) {
  Make("mhc_post_backward", "h_res [*,n,n]");
  Set("grad_output", {1, 2, 3, 4, 5, 6});
  Set("h_res", kFromZeroToOne);
  Set("x", {7, 0, 0, 0, 0, 0});
  Run();
  EXPECT_EQ(Get("grad_x"), Values({3, 4, 0, 0, 0, 0}));  // stream 1's came back to stream 0
  EXPECT_EQ(Get("grad_h_res"), Values({7, 21, 35, 0, 0, 0, 0, 0, 0}));  // row 0, of x's stream 0
}

}  // namespace
}  // namespace anabranch
