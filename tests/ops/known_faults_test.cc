// Kinds of faults that implementations of such operators have had, each looked for in every
// operator of the table. docs/differential.md lists them.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>

#include "anabranch/mhc_head.h"
#include "anabranch/mhc_post.h"
#include "src/tools/harness/harness.h"

namespace anabranch {
namespace {

using harness::Bits;
using harness::CaseChecker;
using harness::CaseTensors;
using harness::Layout;
using harness::Random;
using harness::Verdict;

constexpr std::int64_t kTokens = 11;  // a size that nothing else in the cases below has

std::vector<std::string> Names() {
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

  void Check(const Case& c, Layout layout = Layout::kAwkward, int threads = 3) const {
    CaseChecker checker(entry(), c, 77, layout);
    CheckWith(checker, c, threads);
  }

  void CheckWith(CaseChecker& checker, const Case& c, int threads = 3) const {
    for (Target target : SupportedTargets()) {
      const Verdict verdict = checker.Check(Context().set_target(target).set_threads(threads));
      ASSERT_TRUE(verdict.ok) << TargetName(target) << " " << harness::ToString(entry(), c) << "\n"
                              << verdict.message;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Table, KnownFaults, testing::ValuesIn(Names()),
                         [](const auto& param_info) { return param_info.param; });

// The dimension that counts tokens in a case of kTokens tokens, or -1.
int TokenDimension(const TensorView& view) {
  for (int i = 0; i < view.rank(); ++i) {
    if (view.sizes[i] == kTokens) return i;
  }
  return -1;
}

TensorView OneToken(TensorView view, std::int64_t token) {
  const int i = TokenDimension(view);
  if (i < 0) return view;
  const auto element = static_cast<std::int64_t>(DTypeSize(view.dtype));
  view.data = static_cast<std::byte*>(view.data) + token * view.strides[i] * element;
  view.sizes[i] = 1;
  return view;
}

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
    for (std::int64_t tokens : {1, 9}) {
      Case c = Small(tokens);
      c.d = d;
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

// Writes one value into a token's rows of everything that is given by token, or of the first such.
void SetToken(const OperatorEntry& entry, const Case& c, const CaseTensors& tensors,
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
        EXPECT_EQ(status.message().rfind(entry().name, 0), 0u) << status.message();
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

// A tensor that is one too long in any dimension, caches above all: refused, nothing written.
TEST_P(KnownFaults, TensorsOfTheWrongSize) {
  for (const Case& c : Variants(Small())) {
    Random random(85);
    CaseTensors tensors = Allocate(entry(), c, Layout::kDense, random);
    FillInputs(entry(), c, tensors, random);
    for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
      for (int i = 0; i < tensors.buffers[k].view.rank(); ++i) {
        std::vector<TensorView> views = tensors.Views();
        ++views[k].sizes[i];
        Plan plan;
        const Status status = entry().prepare(c, views, &plan, Context());
        ASSERT_FALSE(status.ok()) << tensors.specs[k].name << " dimension " << i << " "
                                  << harness::ToString(entry(), c);
        EXPECT_EQ(status.message().rfind(entry().name, 0), 0u) << status.message();
      }
    }
  }
}

// Memory that is reserved, and there where it is touched.
class Sparse {
 public:
  explicit Sparse(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Sparse() {
    if (ok()) munmap(data_, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  bool ok() const { return data_ != MAP_FAILED; }
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// Two tokens more than 2^31 elements apart: offsets that 32 bits do not hold.
TEST_P(KnownFaults, OffsetsBeyond32Bits) {
  constexpr std::int64_t kApart = (std::int64_t{1} << 31) + 24;
  Case c = Small(2);
  c.sources = 3;
  Random random(86);
  CaseTensors dense = Allocate(entry(), c, Layout::kDense, random);
  FillInputs(entry(), c, dense, random);
  ASSERT_TRUE(RunCase(entry(), c, dense, Context()).ok());
  std::vector<std::unique_ptr<Sparse>> memory;
  std::vector<TensorView> views;
  for (std::size_t k = 0; k < dense.specs.size(); ++k) {
    TensorView view = dense.buffers[k].view;
    for (int i = 0; i + 1 < view.rank(); ++i) {
      if (view.sizes[i] != 2) continue;
      view.strides[i] = kApart;
      memory.push_back(std::make_unique<Sparse>((kApart + (1 << 20)) * DTypeSize(view.dtype)));
      if (!memory.back()->ok()) GTEST_SKIP() << "the system reserves no such address range";
      view.data = memory.back()->data();
      break;
    }
    views.push_back(view);
    if (!dense.specs[k].output) harness::WriteAll(view, harness::ReadAll(dense.buffers[k].view));
  }
  Plan plan;
  ASSERT_TRUE(entry().prepare(c, views, &plan, Context()).ok());
  ASSERT_TRUE(plan.Run().ok());
  for (std::size_t k = 0; k < views.size(); ++k) {
    if (!dense.specs[k].output) continue;
    EXPECT_EQ(Bits(views[k]), Bits(dense.buffers[k].view)) << dense.specs[k].name;
  }
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

// More than 2^31 elements in one tensor; x is one token's memory, seen T times.
TEST(SlowKnownFaults, MoreElementsThan31Bits) {
  constexpr std::int64_t kT = (std::int64_t{1} << 20) + 3, kN = 8, kD = 256;
  std::vector<std::uint16_t> x(kN * kD), y(kT * kD);
  std::vector<float> fn(kN * kN * kD, 0.01f), base(kN, 0.25f), scale(1, 1.0f);
  for (std::size_t k = 0; k < x.size(); ++k) {
    x[k] = ToBFloat16(0.01f * static_cast<float>(k % 83)).bits;
  }
  MhcHeadArgs args;
  args.x = TensorView(x.data(), DType::kBFloat16, {kT, kN, kD}, {0, kD, 1});
  ASSERT_GT(args.x.numel(), std::int64_t{1} << 31);
  args.fn = TensorView(fn.data(), DType::kFloat32, {kN, kN * kD});
  args.base = TensorView(base.data(), DType::kFloat32, {kN});
  args.scale = TensorView(scale.data(), DType::kFloat32, {1});
  args.y = TensorView(y.data(), DType::kBFloat16, {kT, kD});
  Plan plan;
  ASSERT_TRUE(Prepare(args, &plan).ok());
  ASSERT_TRUE(plan.Run().ok());
  EXPECT_NE(y[1], 0);
  for (std::int64_t t = 1; t < kT; ++t) {
    ASSERT_EQ(std::memcmp(y.data(), y.data() + t * kD, kD * 2), 0) << "token " << t;
  }
}

}  // namespace
}  // namespace anabranch
