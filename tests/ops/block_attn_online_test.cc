// The online softmax that block_attn_res takes for large tokens, beside the two passes.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "src/ops/attn_res/online.h"
#include "src/tools/harness/harness.h"
#include "tests/ops/attn_res_call.h"

namespace anabranch {
namespace {

using attn_test::Call;
using attn_test::Data;
using attn_test::RunArgs;
using attn_test::Values;

// The smallest number of FP32 sources of d elements that is taken in groups.
std::int64_t OnlineSources(std::int64_t d) { return OnlineGroups::kTokenBytes / (4 * d) + 1; }

constexpr std::int64_t kD = 4100;  // not a multiple of 32

std::string Kernel(const BlockAttnResArgs& args) {
  Plan plan;
  EXPECT_TRUE(Prepare(args, &plan).ok());
  return std::string(plan.info().kernel);
}

TEST(BlockAttnOnlineTest, GroupsCoverAllSourcesInOrder) {
  for (const std::int64_t row_bytes : {4096, 8192, 14336, 32768, 400000, 5000000}) {
    for (int sources = 1; sources <= kMaxSources; ++sources) {
      const OnlineGroups groups(sources, row_bytes);
      EXPECT_EQ(groups.count > 0, sources * row_bytes > OnlineGroups::kTokenBytes);
      for (int g = 0; g < groups.count; ++g) {
        EXPECT_EQ(groups.First(g), g == 0 ? 0 : groups.First(g - 1) + groups.Rows(g - 1));
        EXPECT_GE(groups.Rows(g), 1);
        EXPECT_LE(groups.Rows(g), OnlineGroups::kMostRows);
        EXPECT_TRUE(g == 0 || groups.Rows(g) <= groups.Rows(g - 1));
        EXPECT_TRUE(groups.Rows(g) == 1 || groups.Rows(g) * row_bytes <= OnlineGroups::kGroupBytes);
      }
      if (groups.count > 0) {
        EXPECT_EQ(groups.First(groups.count), sources);
      }
    }
  }
}

// Both sides of the size at which the form changes, against the reference on every target.
TEST(BlockAttnOnlineTest, AgreesWithTheReference) {
  const std::vector<Case> cases = {
      {.seq = 3, .d = 7680, .sources = 32, .dtype = DType::kBFloat16},  // two passes
      {.seq = 3, .d = 7681, .sources = 32, .dtype = DType::kBFloat16},
      {.seq = 3, .d = 4103, .sources = 77, .dtype = DType::kFloat16},
      {.seq = 2, .d = 4096, .sources = 31, .dtype = DType::kFloat32},
      {.seq = 2, .d = 1000, .sources = 127, .dtype = DType::kFloat32},
      {.seq = 2, .d = 70000, .sources = 4, .dtype = DType::kFloat32},
      {.seq = 1, .d = 300000, .sources = 2, .dtype = DType::kBFloat16}};
  for (Case c : cases) {
    const bool online =
        c.sources * c.d * static_cast<std::int64_t>(DTypeSize(c.dtype)) > OnlineGroups::kTokenBytes;
    EXPECT_EQ(online, c.d != 7680);
    for (const Target target : SupportedTargets()) {
      Context context;
      context.set_target(target);
      for (const int variant : {0, 1}) {
        c.variant = variant;
        const harness::Verdict verdict =
            harness::CheckCase(*FindOperator("block_attn_res"), c, 23, context);
        EXPECT_TRUE(verdict.ok) << TargetName(target) << " d=" << c.d << " L=" << c.sources << "\n"
                                << verdict.message;
      }
    }
  }
}

TEST(BlockAttnOnlineTest, PlanNamesTheForm) {
  const std::int64_t sources = OnlineSources(kD);
  EXPECT_NE(Kernel(Call(sources, false, 1, kD).forward).find("online"), std::string::npos);
  EXPECT_EQ(Kernel(Call(sources - 1, false, 1, kD).forward).find("online"), std::string::npos);
}

// Whatever the number of threads and of tokens, and whether rows are dense.
TEST(BlockAttnOnlineTest, SameBits) {
  const std::int64_t sources = OnlineSources(kD), tokens = 7;
  Call call(sources, false, tokens, kD, 0.02);
  ASSERT_TRUE(RunArgs(call.forward).ok());
  const std::vector<float> h = Values(call.forward.h);
  const std::vector<float> alpha = Values(call.forward.alpha_cache);
  const std::vector<float> rms = Values(call.forward.rms_cache);
  for (const int threads : {1, 2, 5}) {
    Context context;
    context.set_threads(threads);
    std::fill_n(Data(call.forward.h), h.size(), -7.0f);
    Plan plan;
    ASSERT_TRUE(Prepare(call.forward, &plan, context).ok());
    ASSERT_TRUE(plan.Run(context).ok());
    EXPECT_EQ(Values(call.forward.h), h);
    EXPECT_EQ(Values(call.forward.alpha_cache), alpha);
  }
  for (const Target target : SupportedTargets()) {
    if (!TargetHasFma(target)) continue;
    Context context;
    context.set_target(target);
    Plan plan;
    ASSERT_TRUE(Prepare(call.forward, &plan, context).ok());
    ASSERT_TRUE(plan.Run(context).ok());
    EXPECT_EQ(Values(call.forward.h), h) << TargetName(target);
  }
  // One source is every second element of a wider tensor: all rows go through pieces.
  Call strided(sources, false, tokens, kD, 0.02);
  const TensorView wide = strided.memory.Tensor({tokens, 2 * kD});
  for (std::int64_t k = 0; k < tokens * kD; ++k) {
    Data(wide)[2 * k] = Data(strided.forward.blocks[3])[k];
  }
  strided.forward.blocks[3] =
      TensorView(wide.data, DType::kFloat32, Dims{tokens, kD}, Dims{2 * kD, 2});
  ASSERT_TRUE(RunArgs(strided.forward).ok());
  EXPECT_EQ(Values(strided.forward.h), h);
  EXPECT_EQ(Values(strided.forward.alpha_cache), alpha);
  EXPECT_EQ(Values(strided.forward.rms_cache), rms);
  // One token alone.
  const std::int64_t t = 4;
  Call one(sources, false, 1, kD, 0.02);
  for (std::size_t l = 0; l < static_cast<std::size_t>(sources); ++l) {
    one.forward.blocks[l].data = Data(call.forward.blocks[l]) + t * kD;
  }
  one.forward.proj_weight = call.forward.proj_weight;
  one.forward.rmsnorm_gamma = call.forward.rmsnorm_gamma;
  ASSERT_TRUE(RunArgs(one.forward).ok());
  EXPECT_EQ(Values(one.forward.h),
            std::vector<float>(h.begin() + t * kD, h.begin() + (t + 1) * kD));
}

// The weight of a source in an early group falls to nothing when a late one turns up.
TEST(BlockAttnOnlineTest, HugeScoresPickOneSource) {
  const std::int64_t sources = OnlineSources(kD);
  for (const std::int64_t winner : {std::int64_t{0}, sources / 2, sources - 1}) {
    Call call(sources, false, 2, kD);
    std::fill_n(Data(call.forward.proj_weight), kD, 1e30f);
    std::fill_n(Data(call.forward.rmsnorm_gamma), kD, 1.0f);
    for (std::int64_t l = 0; l < sources; ++l) {
      std::fill_n(Data(call.forward.blocks[static_cast<std::size_t>(l)]), 2 * kD,
                  l == winner ? 2.0f : -1.0f);
    }
    ASSERT_TRUE(RunArgs(call.forward).ok());
    EXPECT_EQ(Values(call.forward.h), std::vector<float>(2 * kD, 2.0f)) << winner;
    const std::vector<float> alpha = Values(call.forward.alpha_cache);
    for (std::int64_t l = 0; l < sources; ++l) {
      EXPECT_EQ(alpha[static_cast<std::size_t>(l)], l == winner ? 1.0f : 0.0f);
    }
  }
}

TEST(BlockAttnOnlineTest, NanAndInfinityStayInTheirToken) {
  const std::int64_t sources = OnlineSources(kD);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const std::int64_t source : {std::int64_t{0}, sources - 1}) {
      Call call(sources, false, 3, kD);
      ASSERT_TRUE(RunArgs(call.forward).ok());
      const std::vector<float> h = Values(call.forward.h);
      Data(call.forward.blocks[static_cast<std::size_t>(source)])[kD + 11] = bad;  // token 1
      ASSERT_TRUE(RunArgs(call.forward).ok());
      bool same = true;
      for (std::int64_t k = 0; k < 3 * kD; ++k) {
        const auto i = static_cast<std::size_t>(k);
        if (k / kD != 1) same = same && Data(call.forward.h)[k] == h[i];
      }
      EXPECT_TRUE(same);
      EXPECT_TRUE(std::isnan(Data(call.forward.h)[kD]));
      EXPECT_TRUE(std::isnan(Data(call.forward.alpha_cache)[sources]));
    }
  }
}

// Without the norm scores may be -inf: such sources have no weight, also if they are all of a
// group, the first one or the last one; the infinite element itself is 0 * inf.
TEST(BlockAttnOnlineTest, MinusInfinityHasNoWeight) {
  const std::int64_t sources = OnlineSources(kD);
  for (const bool first : {true, false}) {
    Call call(sources, false, 1, kD, 0.01), few(2, false, 1, kD);
    call.forward.enable_rmsnorm = few.forward.enable_rmsnorm = false;
    Data(call.forward.proj_weight)[0] = 1;
    for (std::int64_t l = 0; l < sources; ++l) {
      const bool alive = first ? l >= sources - 2 : l < 2;
      if (!alive) Data(call.forward.blocks[static_cast<std::size_t>(l)])[0] = -INFINITY;
    }
    for (std::size_t i = 0; i < 2; ++i) {
      few.forward.blocks[i] =
          call.forward.blocks[first ? static_cast<std::size_t>(sources) - 2 + i : i];
    }
    few.forward.proj_weight = call.forward.proj_weight;
    ASSERT_TRUE(RunArgs(call.forward).ok());
    ASSERT_TRUE(RunArgs(few.forward).ok());
    EXPECT_TRUE(std::isnan(Data(call.forward.h)[0]));
    for (std::int64_t k = 1; k < kD; ++k) {
      ASSERT_NEAR(Data(call.forward.h)[k], Data(few.forward.h)[k], 1e-5) << k;
    }
    const std::int64_t at = first ? sources - 2 : 0;
    EXPECT_FLOAT_EQ(Data(call.forward.alpha_cache)[at], Data(few.forward.alpha_cache)[0]);
    EXPECT_EQ(Data(call.forward.alpha_cache)[first ? 0 : sources - 1], 0);
  }
}

TEST(BlockAttnOnlineTest, ZeroQueryGivesUniformWeights) {
  const std::int64_t sources = OnlineSources(kD);
  Call call(sources, false, 1, kD, 0.0);
  ASSERT_TRUE(RunArgs(call.forward).ok());
  const auto share = 1 / static_cast<float>(sources);
  EXPECT_EQ(Values(call.forward.alpha_cache),
            std::vector<float>(static_cast<std::size_t>(sources), share));
  double mean = 0;
  for (const TensorView& block : call.forward.blocks) mean += Data(block)[99];
  EXPECT_NEAR(Data(call.forward.h)[99], mean * share, 1e-5);
}

// The backward takes what the online forward has cached.
TEST(BlockAttnOnlineTest, CachesServeTheBackward) {
  Call call(OnlineSources(kD), false, 2, kD, 0.02);
  ASSERT_TRUE(RunArgs(call.forward).ok());
  ASSERT_TRUE(RunArgs(call.backward).ok());
  const std::vector<float> with = Values(call.backward.grad_blocks[1]);
  call.backward.rms_cache = TensorView();
  ASSERT_TRUE(RunArgs(call.backward).ok());
  EXPECT_EQ(Values(call.backward.grad_blocks[1]), with);
}

}  // namespace
}  // namespace anabranch
