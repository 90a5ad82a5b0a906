// Arguments that are left out, of the wrong size, changed in place or rounded on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "anabranch/mhc_post.h"
#include "tests/ops/known_faults.h"
#include "tests/words.h"

namespace anabranch {
namespace {

using harness::Bits;
using harness::CaseTensors;
using harness::Layout;
using harness::Random;

// The operator and one of the arguments are named, or an argument that does not match without it.
void ExpectRefused(const Status& status, const std::string& op,
                   const std::vector<std::string>& names) {
  const std::string& message = status.message();
  EXPECT_EQ(message.rfind(op + ": ", 0), 0u) << message;
  if (message.find(" to match ") != std::string::npos) return;
  EXPECT_TRUE(std::any_of(names.begin(), names.end(),
                          [&](const std::string& name) { return HasWords(message, name); }))
      << "none of " << testing::PrintToString(names) << " in: " << message;
}

// Each argument left out: refused by name, or the others' bits are as before. So an optional output
// may be left out, and one may be asked for alone where the operator allows it.
TEST_P(KnownFaults, AnyArgumentLeftOut) {
  for (const Case& c : Variants(Small())) {
    Random random(84);
    CaseTensors tensors = Allocate(entry(), c, Layout::kDense, random);
    FillInputs(entry(), c, tensors, random);
    ASSERT_TRUE(RunCase(entry(), c, tensors, Context()).ok());
    std::vector<std::string> right;
    for (const harness::Buffer& buffer : tensors.buffers) right.push_back(Bits(buffer.view));
    std::vector<std::size_t> optional;
    const auto call_without = [&](const std::vector<std::size_t>& absent) {
      std::vector<TensorView> views = tensors.Views();
      for (std::size_t k : absent) views[k] = TensorView();
      for (std::size_t k = 0; k < views.size(); ++k) {
        if (tensors.specs[k].output) harness::FillBytes(tensors.buffers[k].view, std::byte{0x5a});
      }
      Plan plan;
      Status status = entry().prepare(c, views, &plan, Context());
      if (!status.ok()) {
        std::vector<std::string> names;
        for (std::size_t k : absent) names.push_back(tensors.specs[k].name);
        ExpectRefused(status, entry().name, names);
        return false;
      }
      EXPECT_TRUE(plan.Run().ok());
      for (std::size_t k = 0; k < views.size(); ++k) {
        if (!tensors.specs[k].output || !views[k].defined()) continue;
        EXPECT_EQ(Bits(views[k]), right[k])
            << tensors.specs[k].name << " " << harness::ToString(entry(), c);
      }
      return true;
    };
    for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
      if (!tensors.specs[k].output) {
        // An input left out is another call; all that matters here is that nothing breaks.
        std::vector<TensorView> views = tensors.Views();
        views[k] = TensorView();
        Plan plan;
        const Status status = entry().prepare(c, views, &plan, Context());
        if (status.ok()) {
          EXPECT_TRUE(plan.Run().ok());
        } else {
          ExpectRefused(status, entry().name, {tensors.specs[k].name});
        }
      } else if (call_without({k})) {
        optional.push_back(k);
      }
    }
    for (std::size_t kept : optional) {
      std::vector<std::size_t> others;
      std::copy_if(optional.begin(), optional.end(), std::back_inserter(others),
                   [&](std::size_t k) { return k != kept; });
      call_without(others);
    }
  }
}

// A tensor that is one too long or too short in any dimension, caches above all: refused by name.
TEST_P(KnownFaults, TensorsOfTheWrongSize) {
  for (const Case& c : Variants(Small())) {
    Random random(85);
    CaseTensors tensors = Allocate(entry(), c, Layout::kDense, random);
    FillInputs(entry(), c, tensors, random);
    for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
      for (int i = 0; i < tensors.buffers[k].view.rank(); ++i) {
        for (int more : {1, -1}) {
          std::vector<TensorView> views = tensors.Views();
          views[k].sizes[i] += more;
          Plan plan;
          const Status status = entry().prepare(c, views, &plan, Context());
          ASSERT_FALSE(status.ok()) << tensors.specs[k].name << " dimension " << i << " "
                                    << harness::ToString(entry(), c);
          ExpectRefused(status, entry().name, {tensors.specs[k].name});
        }
      }
    }
  }
}

// A plan keeps addresses and no values: inputs, parameters and caches that change in place between
// two runs of it count as they are.
TEST_P(KnownFaults, InputsChangedInPlaceBetweenRuns) {
  int changed = 0;
  for (const Case& c : Variants(Small())) {
    Random random(87);
    CaseTensors tensors = Allocate(entry(), c, Layout::kDense, random);
    FillInputs(entry(), c, tensors, random);
    Plan plan;
    ASSERT_TRUE(entry().prepare(c, tensors.Views(), &plan, Context()).ok());
    ASSERT_TRUE(plan.Run().ok());
    const auto outputs = [](const CaseTensors& of) {
      std::vector<std::string> bits;
      for (std::size_t k = 0; k < of.specs.size(); ++k) {
        if (of.specs[k].output) bits.push_back(Bits(of.buffers[k].view));
      }
      return bits;
    };
    const std::vector<std::string> before = outputs(tensors);
    FillInputs(entry(), c, tensors, random);
    ASSERT_TRUE(plan.Run().ok());
    const CaseTensors fresh = Dense(entry(), c, tensors);
    ASSERT_TRUE(RunCase(entry(), c, fresh, Context()).ok());
    EXPECT_TRUE(outputs(tensors) == outputs(fresh)) << harness::ToString(entry(), c);
    if (outputs(tensors) != before) ++changed;
  }
  EXPECT_GT(changed, 0);  // a form without sources may give zeros for anything
}

// Coefficients rounded to 16 bit on the way: what is left of 1 - (1 - 2^-20) with activations of 1.
TEST(KnownFaultsOfOne, CoefficientsKeepTheirPrecision) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (Target target : SupportedTargets()) {
      constexpr std::int64_t kD = 40;
      std::vector<std::byte> x(2 * kD * 4), h_out(kD * 4), y(2 * kD * 4);
      float h_post[] = {-1.0f + 0x1p-20f, 1.0f};
      float h_res[] = {1, 0, 0, -1};  // y[0] = x[0] - (1 - 2^-20) h_out, y[1] = h_out - x[1]
      MhcPostArgs args;
      args.x = TensorView(x.data(), dtype, {1, 2, kD});
      args.h_out = TensorView(h_out.data(), dtype, {1, kD});
      args.y = TensorView(y.data(), dtype, {1, 2, kD});
      args.h_post = TensorView(h_post, DType::kFloat32, {1, 2});
      args.h_res = TensorView(h_res, DType::kFloat32, {1, 2, 2});
      harness::WriteAll(args.x, std::vector<double>(2 * kD, 1.0));
      harness::WriteAll(args.h_out, std::vector<double>(kD, 1.0));
      Plan plan;
      ASSERT_TRUE(Prepare(args, &plan, Context().set_target(target)).ok());
      ASSERT_TRUE(plan.Run().ok());
      const std::vector<double> got = harness::ReadAll(args.y);
      for (std::size_t e = 0; e < got.size(); ++e) {
        EXPECT_EQ(got[e], e < kD ? 0x1p-20 : 0.0) << TargetName(target) << " " << e;
      }
    }
  }
}

}  // namespace
}  // namespace anabranch
