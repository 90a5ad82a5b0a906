// Every operator through the C face gives the bits of the C++ face, in awkward layouts.
#include <gtest/gtest.h>

#include "tests/acl/catalog_call.h"

namespace anabranch::acl_test {
namespace {

using harness::Bits;
using harness::CaseTensors;
using harness::Random;

class EveryAclnnOperator : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_EQ(aclrtSetDevice(0), 0); }
  void TearDown() override { aclrtResetDevice(0); }
};

INSTANTIATE_TEST_SUITE_P(Table, EveryAclnnOperator, testing::ValuesIn(CatalogCall::Names()),
                         [](const auto& param_info) { return param_info.param; });

TEST_P(EveryAclnnOperator, HasTheBitsOfTheCppFace) {
  const OperatorEntry& entry = *FindOperator(GetParam());
  Random random(31);
  int compared = 0;
  while (compared < 40) {
    const Case c = harness::RandomCase(entry, random, 5000);
    if (!CatalogCall::Exists(entry, c)) continue;
    ++compared;
    CaseTensors tensors = Allocate(entry, c, harness::Layout::kAwkward, random);
    FillInputs(entry, c, tensors, random);
    CatalogCall call(entry, c, tensors);
    ASSERT_EQ(call.Run(nullptr), 0) << harness::ToString(entry, c) << "\n" << aclGetRecentErrMsg();
    CaseTensors want = Dense(entry, c, tensors);
    ASSERT_TRUE(RunCase(entry, c, want, Context()).ok());
    for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
      if (!tensors.specs[k].output) continue;
      ASSERT_EQ(Bits(tensors.buffers[k].view), Bits(want.buffers[k].view))
          << tensors.specs[k].name << " of " << harness::ToString(entry, c);
    }
  }
}

}  // namespace
}  // namespace anabranch::acl_test
