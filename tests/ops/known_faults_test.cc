// Token counts, hidden sizes, layouts and values that others stumbled over, in every operator.
#include "tests/ops/known_faults.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace anabranch {
namespace {

using harness::Bits;
using harness::CaseChecker;
using harness::CaseTensors;
using harness::Layout;
using harness::Random;
using harness::Verdict;

INSTANTIATE_TEST_SUITE_P(Table, KnownFaults, testing::ValuesIn(OperatorNames()),
                         [](const auto& param_info) { return param_info.param; });

// Counts that fill no tile: rows of the tail that are dropped, or written past the end.
TEST_P(KnownFaults, TokenCountsThatFillNoTile) {
  for (std::int64_t tokens : {21, 112, 129}) {
    for (const Case& c : Variants(Small(tokens))) Check(c);
  }
}

TEST_P(KnownFaults, ManyTokensThatFillNoTile) {
  Case c = Small(8191);
  c.d = 24;
  c.num_iters = 2;
  CaseChecker checker(entry(), c, 78, Layout::kDense);
  const Verdict verdict = checker.Check(Context().set_threads(3));
  EXPECT_TRUE(verdict.ok) << verdict.message;
}

// A kernel tuned for one hidden size, wrong at another, from some number of tokens on.
TEST_P(KnownFaults, HiddenSizesOfRealModels) {
  for (std::int64_t d : {2048, 3072, 3584, 5120, 7168}) {
    for (std::int64_t tokens : {1, 9, 33}) {
      Case c = Small(tokens);
      c.d = d;
      if (tokens == 9) {
        Check(c, Layout::kDense, 2);  // every target
        continue;
      }
      CaseChecker checker(entry(), c, 79, Layout::kDense);
      const Verdict verdict = checker.Check(Context().set_threads(2));
      EXPECT_TRUE(verdict.ok) << harness::ToString(entry(), c) << "\n" << verdict.message;
    }
  }
}

TEST_P(KnownFaults, RowsLongerThanTheirContents) {
  for (const Case& c : Variants(Small())) Check(c, Layout::kPaddedRows);
}

TEST_P(KnownFaults, OddOffsets) {
  for (const Case& c : Variants(Small())) Check(c, Layout::kOddOffset);
}

TEST_P(KnownFaults, ExpandedInputs) {
  for (const Case& c : Variants(Small())) Check(c, Layout::kExpanded);
}

TEST_P(KnownFaults, TransposedTensors) {
  for (const Case& c : Variants(Small())) Check(c, Layout::kTransposed);
}

// Lanes behind the end of a row that take part in a sum: every length around the vectors, with
// nothing or NaN behind the rows.
TEST_P(KnownFaults, LanesBehindTheRow) {
  for (std::int64_t d = 1; d <= 34; ++d) {
    Case c = Small(3);
    c.d = d;
    Check(c, Layout::kPaddedRows, 1);
    Check(c, Layout::kAwkward, 1);
  }
}

TEST_P(KnownFaults, AllZeroRows) {
  for (const Case& c : Variants(Small())) {
    CaseChecker checker(entry(), c, 80);
    SetToken(entry(), c, checker.tensors(), 4, 0, false);
    checker.Recompute();
    CheckWith(checker, c);
  }
}

TEST_P(KnownFaults, SubnormalRows) {
  for (Case c : Variants(Small())) {
    if (c.dtype == DType::kFloat16) continue;
    CaseChecker checker(entry(), c, 81);
    SetToken(entry(), c, checker.tensors(), 4, 0x1.8p-130, true);
    checker.Recompute();
    CheckWith(checker, c);
  }
}

// NaN or infinity in one token: the outputs of every other token keep their bits.
TEST_P(KnownFaults, NanAndInfinityStayInTheirToken) {
  int compared = 0;
  for (const Case& c : Variants(Small())) {
    Random random(82);
    CaseTensors tensors = Allocate(entry(), c, Layout::kDense, random);
    FillInputs(entry(), c, tensors, random);
    const auto run = [&] {
      ASSERT_TRUE(RunCase(entry(), c, tensors, Context().set_threads(2)).ok());
    };
    const auto bits = [&] {
      std::vector<std::string> all;
      for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
        if (!tensors.specs[k].output || TokenDimension(tensors.buffers[k].view) < 0) continue;
        for (std::int64_t t = 0; t < kTokens; ++t) {
          if (t != 5) all.push_back(Bits(OneToken(tensors.buffers[k].view, t)));
        }
      }
      return all;
    };
    run();
    const std::vector<std::string> before = bits();
    if (before.empty()) continue;  // a form without sources gives gradients of parameters alone
    ++compared;
    for (double value : {std::numeric_limits<double>::quiet_NaN(), double{INFINITY}}) {
      SetToken(entry(), c, tensors, 5, value, true);
      run();
      EXPECT_EQ(bits(), before) << value << " " << harness::ToString(entry(), c);
    }
  }
  EXPECT_GT(compared, 0);
}

// A token alone has the bits that it has in a batch.
TEST_P(KnownFaults, ATokenAloneIsTheTokenInItsBatch) {
  for (const Case& c : Variants(Small())) {
    Random random(83);
    CaseTensors batch = Allocate(entry(), c, Layout::kDense, random);
    FillInputs(entry(), c, batch, random);
    ASSERT_TRUE(RunCase(entry(), c, batch, Context().set_threads(2)).ok());
    for (std::int64_t token : {std::int64_t{0}, std::int64_t{6}, kTokens - 1}) {
      Case alone = c;
      alone.seq = 1;
      CaseTensors one = Allocate(entry(), alone, Layout::kDense, random);
      for (std::size_t k = 0; k < one.specs.size(); ++k) {
        if (one.specs[k].output) continue;
        harness::WriteAll(one.buffers[k].view,
                          harness::ReadAll(OneToken(batch.buffers[k].view, token)));
      }
      ASSERT_TRUE(RunCase(entry(), alone, one, Context()).ok());
      for (std::size_t k = 0; k < one.specs.size(); ++k) {
        const TensorView& view = batch.buffers[k].view;
        if (!one.specs[k].output || TokenDimension(view) < 0) continue;
        EXPECT_EQ(Bits(one.buffers[k].view), Bits(OneToken(view, token)))
            << one.specs[k].name << " of token " << token << " " << harness::ToString(entry(), c);
      }
    }
  }
}

}  // namespace
}  // namespace anabranch
