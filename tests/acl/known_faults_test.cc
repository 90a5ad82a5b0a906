// Kinds of faults that others had, looked for in every operator through the C face: the C++ face,
// which is compared with the definition in the same ways (tests/ops/known_faults*), says what is
// right. docs/differential.md lists them.
#include "tests/ops/known_faults.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/acl/catalog_call.h"
#include "tests/ops/far_apart.h"

namespace anabranch::acl_test {
namespace {

using harness::Bits;
using harness::CaseTensors;
using harness::Layout;
using harness::Random;

class AclKnownFaults : public KnownFaults {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    if (Forms(Small()).empty()) {
      GTEST_SKIP() << "its caches have another layout in C: mhc_sinkhorn_test.cc";
    }
  }
  void TearDown() override { aclrtResetDevice(0); }

  // The forms of a case that the C face has.
  std::vector<Case> Forms(const Case& c) const {
    std::vector<Case> forms;
    for (const Case& form : Variants(c)) {
      if (CatalogCall::Exists(entry(), form)) forms.push_back(form);
    }
    return forms;
  }

  CaseTensors Filled(const Case& c, Layout layout) const {
    Random random(91);
    CaseTensors tensors = Allocate(entry(), c, layout, random);
    FillInputs(entry(), c, tensors, random);
    return tensors;
  }

  // Outputs of `got` have the bits of the C++ call with the same inputs.
  void ExpectRight(const Case& c, const CaseTensors& got) const {
    const CaseTensors want = Dense(entry(), c, got);
    ASSERT_TRUE(RunCase(entry(), c, want, Context()).ok());
    for (std::size_t k = 0; k < got.specs.size(); ++k) {
      if (!got.specs[k].output) continue;
      EXPECT_TRUE(Bits(got.buffers[k].view) == Bits(want.buffers[k].view))
          << got.specs[k].name << " of " << harness::ToString(entry(), c);
    }
  }

  void RunAndCompare(const Case& c, const CaseTensors& tensors) const {
    CatalogCall call(entry(), c, tensors);
    ASSERT_EQ(call.Run(nullptr), 0) << harness::ToString(entry(), c) << "\n"
                                    << aclGetRecentErrMsg();
    ExpectRight(c, tensors);
  }
};

INSTANTIATE_TEST_SUITE_P(Table, AclKnownFaults, testing::ValuesIn(CatalogCall::Names()),
                         [](const auto& param_info) { return param_info.param; });

TEST_P(AclKnownFaults, TokenCountsThatFillNoTile) {
  for (std::int64_t tokens : {21, 112, 129}) {
    for (const Case& c : Forms(Small(tokens))) RunAndCompare(c, Filled(c, Layout::kDense));
  }
  Case many = Forms(Small(8191)).front();
  many.d = 24;
  many.num_iters = 2;
  RunAndCompare(many, Filled(many, Layout::kDense));
}

TEST_P(AclKnownFaults, HiddenSizesOfRealModels) {
  for (std::int64_t d : {2048, 3072, 3584, 5120, 7168}) {
    Case c = Forms(Small(9)).front();
    c.d = d;
    RunAndCompare(c, Filled(c, Layout::kDense));
  }
}

TEST_P(AclKnownFaults, LayoutsThatAreNotDense) {
  for (const Case& c : Forms(Small())) {
    for (Layout layout :
         {Layout::kPaddedRows, Layout::kOddOffset, Layout::kTransposed, Layout::kExpanded}) {
      RunAndCompare(c, Filled(c, layout));
    }
  }
}

TEST_P(AclKnownFaults, RowsOfZeroNanInfinityAndSubnormals) {
  for (const Case& c : Forms(Small())) {
    for (double value : {0.0, std::numeric_limits<double>::quiet_NaN(),
                         std::numeric_limits<double>::infinity(), 0x1.8p-130}) {
      const CaseTensors tensors = Filled(c, Layout::kDense);
      SetToken(entry(), c, tensors, 4, value, value != 0);
      RunAndCompare(c, tensors);
    }
  }
}

// Refused by phase 1, with a message that names the call: caches above all.
TEST_P(AclKnownFaults, TensorsOfTheWrongSize) {
  for (const Case& c : Forms(Small())) {
    CaseTensors tensors = Filled(c, Layout::kDense);
    for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
      const TensorView right = tensors.buffers[k].view;
      for (int i = 0; i < right.rank(); ++i) {
        for (int more : {1, -1}) {
          tensors.buffers[k].view.sizes[i] += more;
          CatalogCall call(entry(), c, tensors);
          EXPECT_NE(call.Prepare(), 0) << tensors.specs[k].name << " dimension " << i << " of "
                                       << harness::ToString(entry(), c);
          EXPECT_NE(std::string(aclGetRecentErrMsg()).find("acl"), std::string::npos);
          tensors.buffers[k].view = right;
        }
      }
    }
  }
}

// Each output left out: refused with a message, or the others' bits are as before.
TEST_P(AclKnownFaults, AnyOutputLeftOut) {
  for (const Case& c : Forms(Small())) {
    CaseTensors tensors = Filled(c, Layout::kDense);
    const CaseTensors want = Dense(entry(), c, tensors);
    ASSERT_TRUE(RunCase(entry(), c, want, Context()).ok());
    for (std::size_t absent = 0; absent < tensors.specs.size(); ++absent) {
      if (!tensors.specs[absent].output) continue;
      const TensorView view = tensors.buffers[absent].view;
      tensors.buffers[absent].view = TensorView();
      CatalogCall call(entry(), c, tensors);
      if (call.Run(nullptr) != 0) {
        EXPECT_NE(std::string(aclGetRecentErrMsg()).find("acl"), std::string::npos);
      } else {
        for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
          if (!tensors.specs[k].output || k == absent) continue;
          EXPECT_TRUE(Bits(tensors.buffers[k].view) == Bits(want.buffers[k].view))
              << tensors.specs[k].name << " without " << tensors.specs[absent].name << " of "
              << harness::ToString(entry(), c);
        }
      }
      tensors.buffers[absent].view = view;
    }
  }
}

// What counts is what memory holds in phase 2, each time that a repeatable executor runs.
TEST_P(AclKnownFaults, InputsChangedInPlaceAfterPhaseOne) {
  for (const Case& c : Forms(Small())) {
    CaseTensors tensors = Filled(c, Layout::kDense);
    CatalogCall call(entry(), c, tensors);
    ASSERT_EQ(call.Prepare(), 0) << aclGetRecentErrMsg();
    ASSERT_EQ(call.MakeRepeatable(), 0);
    Random random(92);
    for (int run = 0; run < 2; ++run) {
      FillInputs(entry(), c, tensors, random);
      ASSERT_EQ(call.Execute(nullptr), 0) << aclGetRecentErrMsg();
      ExpectRight(c, tensors);
    }
  }
}

TEST_P(AclKnownFaults, OffsetsBeyond32Bits) {
  const Case c = Forms(Small(2)).front();
  const CaseTensors dense = Filled(c, Layout::kDense);
  const FarApart far(dense);
  if (!far.ok()) GTEST_SKIP() << "the system reserves no such address range";
  CaseTensors tensors = Dense(entry(), c, dense);
  for (std::size_t k = 0; k < far.views().size(); ++k) tensors.buffers[k].view = far.views()[k];
  RunAndCompare(c, tensors);
}

}  // namespace
}  // namespace anabranch::acl_test
