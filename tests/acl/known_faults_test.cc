// Kinds of faults that others had, looked for in every operator through the C face: the C++ face,
// which is compared with the definition in the same ways (tests/ops/known_faults*), says what is
// right. docs/differential.md lists them.
#include "tests/ops/known_faults.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/acl/catalog_call.h"
#include "tests/ops/far_apart.h"
#include "tests/ops/many_tokens.h"

namespace anabranch::acl_test {
namespace {

using harness::Bits;
using harness::CaseTensors;
using harness::Layout;
using harness::OutputBits;
using harness::Random;

class AclKnownFaults : public KnownFaults {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    ASSERT_FALSE(Forms(Small()).empty());
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

  // Messages name arguments as the C signatures do, in which no name has an underscore, and start
  // with the call.
  static void ExpectCNames(const std::string& message) {
    EXPECT_NE(message.find(": acl"), std::string::npos) << message;
    EXPECT_EQ(message.find('_'), std::string::npos) << message;
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

// Lanes behind the end of a row that take part in a sum: NaN lies there.
TEST_P(AclKnownFaults, LanesBehindTheRow) {
  for (std::int64_t d = 1; d <= 34; ++d) {
    Case c = Forms(Small(3)).front();
    c.d = d;
    RunAndCompare(c, Filled(c, Layout::kPaddedRows));
  }
}

TEST_P(AclKnownFaults, CoefficientsCountBeyond16Bits) {
  int compared = 0;
  for (const Case& c : Forms(Small())) {
    const CaseTensors tensors = Filled(c, Layout::kDense);
    const auto run = [&] {
      CatalogCall call(entry(), c, tensors);
      EXPECT_EQ(call.Run(nullptr), 0) << aclGetRecentErrMsg();
      return OutputBits(tensors);
    };
    compared += ExpectCoefficientsCount(tensors, run, harness::ToString(entry(), c));
  }
  EXPECT_GT(compared, 0);
}

TEST_P(AclKnownFaults, ATokenAloneIsTheTokenInItsBatch) {
  for (const Case& c : Forms(Small())) {
    const CaseTensors batch = Filled(c, Layout::kDense);
    CatalogCall all(entry(), c, batch);
    ASSERT_EQ(all.Run(nullptr), 0) << aclGetRecentErrMsg();
    Case alone = c;
    alone.seq = 1;
    for (std::int64_t token : {std::int64_t{0}, std::int64_t{6}, kTokens - 1}) {
      const CaseTensors one = Filled(alone, Layout::kDense);
      for (std::size_t k = 0; k < one.specs.size(); ++k) {
        if (one.specs[k].output) continue;
        harness::WriteAll(one.buffers[k].view,
                          harness::ReadAll(OneToken(batch.buffers[k].view, token)));
      }
      CatalogCall call(entry(), alone, one);
      ASSERT_EQ(call.Run(nullptr), 0) << aclGetRecentErrMsg();
      for (std::size_t k = 0; k < one.specs.size(); ++k) {
        const TensorView& view = batch.buffers[k].view;
        if (!one.specs[k].output || TokenDimension(view) < 0) continue;
        EXPECT_EQ(Bits(one.buffers[k].view), Bits(OneToken(view, token)))
            << one.specs[k].name << " of token " << token << " " << harness::ToString(entry(), c);
      }
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
          ExpectCNames(aclGetRecentErrMsg());
          tensors.buffers[k].view = right;
        }
      }
    }
  }
}

// Each output left out, and of those that may be left out each asked for alone: refused with a
// message, or the others' bits are as before.
TEST_P(AclKnownFaults, AnyOutputLeftOut) {
  for (const Case& c : Forms(Small())) {
    const CaseTensors tensors = Filled(c, Layout::kDense);
    RunAndCompare(c, tensors);
    std::vector<std::string> right;
    for (const harness::Buffer& buffer : tensors.buffers) right.push_back(Bits(buffer.view));
    const auto call_without = [&](const std::vector<std::size_t>& absent) {
      CaseTensors less;
      less.specs = tensors.specs;
      less.buffers.resize(tensors.buffers.size());
      for (std::size_t k = 0; k < less.buffers.size(); ++k) {
        const TensorView& view = tensors.buffers[k].view;
        if (less.specs[k].output) harness::FillBytes(view, std::byte{0x5a});
        if (std::count(absent.begin(), absent.end(), k) == 0) less.buffers[k].view = view;
      }
      CatalogCall call(entry(), c, less);
      if (call.Run(nullptr) != 0) {
        ExpectCNames(aclGetRecentErrMsg());
        return false;
      }
      for (std::size_t k = 0; k < less.buffers.size(); ++k) {
        if (!less.specs[k].output || !less.buffers[k].view.defined()) continue;
        EXPECT_TRUE(Bits(less.buffers[k].view) == right[k])
            << less.specs[k].name << " of " << harness::ToString(entry(), c);
      }
      return true;
    };
    std::vector<std::size_t> optional;
    for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
      if (tensors.specs[k].output && call_without({k})) optional.push_back(k);
    }
    for (std::size_t kept : optional) {
      std::vector<std::size_t> others = optional;
      others.erase(std::find(others.begin(), others.end(), kept));
      call_without(others);
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

// Programs size a workspace with one dummy block for all tensors, or with none. Phase 2 refuses
// such memory before anything is queued, and the executor is still there for other addresses.
TEST_P(AclKnownFaults, PhaseOneLooksAtNoAddress) {
  std::vector<std::byte> dummy(std::size_t{1} << 16);
  for (const Case& c : Forms(Small())) {
    const CaseTensors right = Filled(c, Layout::kDense);
    CatalogCall sized(entry(), c, right);
    ASSERT_EQ(sized.Prepare(), 0) << aclGetRecentErrMsg();
    for (void* address : {static_cast<void*>(dummy.data()), static_cast<void*>(dummy.data() + 1),
                          static_cast<void*>(nullptr)}) {
      CaseTensors tensors;
      tensors.specs = right.specs;
      for (const harness::Buffer& buffer : right.buffers) {
        // A step of 64 bytes: one address for all would be a call in place.
        const std::size_t step = address == dummy.data() ? 64 * tensors.buffers.size() : 0;
        tensors.buffers.emplace_back().view = buffer.view;
        tensors.buffers.back().view.data =
            address == nullptr ? nullptr : static_cast<std::byte*>(address) + step;
      }
      CatalogCall call(entry(), c, tensors);
      ASSERT_EQ(call.Prepare(), 0) << aclGetRecentErrMsg();
      EXPECT_EQ(call.workspace_size(), sized.workspace_size());
      if (call.KeepsCaches()) continue;  // this test's own copies of them are no such memory
      const int code = call.Execute(nullptr);
      EXPECT_EQ(code, address == nullptr ? 161001 : 161002) << harness::ToString(entry(), c);
      const std::string message = aclGetRecentErrMsg();
      ExpectCNames(message);
      const char* words = address == nullptr        ? "null address"
                          : address == dummy.data() ? " overlaps "
                                                    : "element alignment";
      EXPECT_NE(message.find(words), std::string::npos) << message;
      EXPECT_EQ(aclDestroyAclOpExecutor(call.executor()), 0);
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

class SlowAclKnownFaults : public AclKnownFaults {};
INSTANTIATE_TEST_SUITE_P(Table, SlowAclKnownFaults, testing::ValuesIn(CatalogCall::Names()),
                         [](const auto& param_info) { return param_info.param; });

TEST_P(SlowAclKnownFaults, MoreElementsThan31Bits) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "minutes, and memory that no sanitizer watches: OffsetsBeyond32Bits runs";
#endif
  if (GetParam() == "mhc_sinkhorn_backward") {
    GTEST_SKIP() << "its caches would take a hundred gigabytes: OffsetsBeyond32Bits runs";
  }
  Case c = Forms(Small(2)).front();
  c.d = 1024;
  c.num_iters = 1;
  const ManyTokens many(entry(), c);
  if (!many.ok()) GTEST_SKIP() << "the system maps no such address range";
  Random random(91);
  CaseTensors tensors = Allocate(entry(), c, Layout::kDense, random);
  for (std::size_t k = 0; k < many.views().size(); ++k) tensors.buffers[k].view = many.views()[k];
  CatalogCall call(entry(), c, tensors);
  ASSERT_EQ(call.Run(nullptr), 0) << aclGetRecentErrMsg();
  many.ExpectRight();
}

}  // namespace
}  // namespace anabranch::acl_test
