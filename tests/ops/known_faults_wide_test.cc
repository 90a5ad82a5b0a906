// Offsets, element counts and sizes that 32 bits do not hold.
#include <gtest/gtest.h>

#include "tests/ops/far_apart.h"
#include "tests/ops/known_faults.h"
#include "tests/ops/many_tokens.h"

namespace anabranch {
namespace {

using harness::Bits;
using harness::CaseTensors;
using harness::Layout;
using harness::Random;

// Two tokens more than 2^31 elements apart: offsets that 32 bits do not hold.
TEST_P(KnownFaults, OffsetsBeyond32Bits) {
  const Case c = Small(2);
  Random random(86);
  CaseTensors dense = Allocate(entry(), c, Layout::kDense, random);
  FillInputs(entry(), c, dense, random);
  ASSERT_TRUE(RunCase(entry(), c, dense, Context()).ok());
  const FarApart far(dense);
  if (!far.ok()) GTEST_SKIP() << "the system reserves no such address range";
  Plan plan;
  ASSERT_TRUE(entry().prepare(c, far.views(), &plan, Context()).ok());
  ASSERT_TRUE(plan.Run().ok());
  for (std::size_t k = 0; k < far.views().size(); ++k) {
    if (!dense.specs[k].output) continue;
    EXPECT_TRUE(Bits(far.views()[k]) == Bits(dense.buffers[k].view)) << dense.specs[k].name;
  }
}

class SlowKnownFaults : public KnownFaults {};
INSTANTIATE_TEST_SUITE_P(Table, SlowKnownFaults, testing::ValuesIn(OperatorNames()),
                         [](const auto& param_info) { return param_info.param; });

// More than 2^31 elements in a tensor; see ManyTokens.
TEST_P(SlowKnownFaults, MoreElementsThan31Bits) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "minutes, and memory that no sanitizer watches: OffsetsBeyond32Bits runs";
#endif
  Case c = Small(2);
  c.d = 1024;
  const ManyTokens many(entry(), c);
  if (!many.ok()) GTEST_SKIP() << "the system maps no such address range";
  Plan plan;
  const Status status = entry().prepare(c, many.views(), &plan, Context().set_threads(2));
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(plan.Run().ok());
  many.ExpectRight();
}

}  // namespace
}  // namespace anabranch
