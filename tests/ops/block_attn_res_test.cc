#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "src/core/parallel.h"
#include "src/tools/harness/harness.h"
#include "tests/ops/attn_res_call.h"

namespace anabranch {
namespace {

using attn_test::Call;
using attn_test::Data;
using attn_test::RunArgs;
using attn_test::Values;

TEST(BlockAttnResTest, OneSourceIsExact) {
  Call call(1, false, 5, 77);
  ASSERT_TRUE(RunArgs(call.forward).ok());
  EXPECT_EQ(Values(call.forward.h), Values(call.forward.blocks[0]));
  EXPECT_EQ(Values(call.forward.alpha_cache), std::vector<float>(5, 1.0f));
  ASSERT_TRUE(RunArgs(call.backward).ok());
  EXPECT_EQ(Values(call.backward.grad_blocks[0]), Values(call.backward.grad_h));
  EXPECT_EQ(Values(call.backward.grad_proj_weight), std::vector<float>(77, 0.0f));
  EXPECT_EQ(Values(call.backward.grad_rmsnorm_gamma), std::vector<float>(77, 0.0f));
}

TEST(BlockAttnResTest, RmsCacheIsTheDenominator) {
  Call call(1, true, 1, 4);
  std::fill_n(Data(call.forward.blocks[0]), 4, 3.0f);
  std::fill_n(Data(call.forward.partial_block), 4, 4.0f);
  call.forward.rmsnorm_eps = 7;
  ASSERT_TRUE(RunArgs(call.forward).ok());
  EXPECT_EQ(Values(call.forward.rms_cache), (std::vector<float>{4.0f, std::sqrt(23.0f)}));
  call.forward.enable_rmsnorm = false;
  ASSERT_TRUE(RunArgs(call.forward).ok());
  EXPECT_EQ(Values(call.forward.rms_cache), (std::vector<float>{1.0f, 1.0f}));
}

TEST(BlockAttnResTest, RepeatedSourcesGetAGradientEach) {
  Call call(3, false, 4, 50);
  call.forward.blocks[2] = call.forward.blocks[0];
  call.Share();
  ASSERT_TRUE(RunArgs(call.forward).ok());
  ASSERT_TRUE(RunArgs(call.backward).ok());
  const std::vector<float> alpha = Values(call.forward.alpha_cache);
  for (std::size_t t = 0; t < 4; ++t) EXPECT_EQ(alpha[t * 3], alpha[t * 3 + 2]);
  EXPECT_EQ(Values(call.backward.grad_blocks[0]), Values(call.backward.grad_blocks[2]));
  EXPECT_NE(Values(call.backward.grad_blocks[0]), Values(call.backward.grad_blocks[1]));
}

TEST(BlockAttnResTest, AbsentPartialTakesNoMass) {
  Call absent(2, false, 3, 40), zero(2, true, 3, 40);
  for (std::size_t i = 0; i < 2; ++i) zero.forward.blocks[i] = absent.forward.blocks[i];
  zero.forward.proj_weight = absent.forward.proj_weight;
  zero.forward.rmsnorm_gamma = absent.forward.rmsnorm_gamma;
  std::fill_n(Data(zero.forward.partial_block), 3 * 40, 0.0f);
  ASSERT_TRUE(RunArgs(absent.forward).ok());
  ASSERT_TRUE(RunArgs(zero.forward).ok());
  for (std::int64_t t = 0; t < 3; ++t) {
    const float* two = Data(absent.forward.alpha_cache) + 2 * t;
    const float* three = Data(zero.forward.alpha_cache) + 3 * t;
    EXPECT_NEAR(two[0] + two[1], 1, 1e-6);
    EXPECT_GT(three[2], 0);
    EXPECT_NEAR(three[0] + three[1] + three[2], 1, 1e-6);
  }
}

TEST(BlockAttnResTest, CachesDoNotChangeTheResult) {
  Call call(4, true, 6, 65);
  ASSERT_TRUE(RunArgs(call.forward).ok());
  const std::vector<float> want = Values(call.forward.h);
  call.forward.alpha_cache = call.forward.rms_cache = TensorView();
  ASSERT_TRUE(RunArgs(call.forward).ok());
  EXPECT_EQ(Values(call.forward.h), want);
  ASSERT_TRUE(RunArgs(call.backward).ok());
  const std::vector<float> with = Values(call.backward.grad_blocks[1]);
  call.backward.rms_cache = TensorView();
  ASSERT_TRUE(RunArgs(call.backward).ok());
  EXPECT_EQ(Values(call.backward.grad_blocks[1]), with);
}

TEST(BlockAttnResTest, ZeroParametersGiveUniformWeightsAndFiniteGradients) {
  for (const bool zero_gamma : {false, true}) {
    Call call(3, true, 4, 33);
    const TensorView& zero = zero_gamma ? call.forward.rmsnorm_gamma : call.forward.proj_weight;
    std::fill_n(Data(zero), 33, 0.0f);
    ASSERT_TRUE(RunArgs(call.forward).ok());
    EXPECT_EQ(Values(call.forward.alpha_cache), std::vector<float>(16, 0.25f));
    ASSERT_TRUE(RunArgs(call.backward).ok());
    double size = 0;
    for (const TensorView& grad : {call.backward.grad_proj_weight, call.backward.grad_rmsnorm_gamma,
                                   call.backward.grad_blocks[0]}) {
      for (float v : Values(grad)) {
        ASSERT_TRUE(std::isfinite(v));
        size += std::abs(v);
      }
    }
    EXPECT_GT(size, 0);
    const TensorView& dead =
        zero_gamma ? call.backward.grad_proj_weight : call.backward.grad_rmsnorm_gamma;
    EXPECT_EQ(Values(dead), std::vector<float>(33, 0.0f));
  }
}

TEST(BlockAttnResTest, HugeScoresPickOneSource) {
  Call call(3, false, 2, 40);
  for (std::int64_t k = 0; k < 40; ++k) {
    Data(call.forward.proj_weight)[k] = 1e30f;
    Data(call.forward.rmsnorm_gamma)[k] = 1;
    for (std::int64_t t = 0; t < 2; ++t) {
      for (std::size_t l = 0; l < 3; ++l)
        Data(call.forward.blocks[l])[t * 40 + k] = l == 1 ? 2 : -1;
    }
  }
  ASSERT_TRUE(RunArgs(call.forward).ok());
  EXPECT_EQ(Values(call.forward.alpha_cache), (std::vector<float>{0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(Values(call.forward.h), std::vector<float>(80, 2.0f));
  ASSERT_TRUE(RunArgs(call.backward).ok());
  EXPECT_EQ(Values(call.backward.grad_blocks[1]), Values(call.backward.grad_h));
  EXPECT_EQ(Values(call.backward.grad_blocks[0]), std::vector<float>(80, 0.0f));
}

TEST(BlockAttnResTest, NanAndInfinityStayInTheirToken) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    Call call(3, true, 3, 70);
    ASSERT_TRUE(RunArgs(call.forward).ok());
    ASSERT_TRUE(RunArgs(call.backward).ok());
    const std::vector<float> h = Values(call.forward.h);
    const std::vector<float> grad = Values(call.backward.grad_blocks[0]);
    Data(call.forward.blocks[2])[70 + 11] = bad;  // token 1
    ASSERT_TRUE(RunArgs(call.forward).ok());
    ASSERT_TRUE(RunArgs(call.backward).ok());
    bool hit = false;
    for (std::size_t k = 0; k < h.size(); ++k) {
      if (k / 70 == 1) {
        hit = hit || !std::isfinite(Data(call.forward.h)[k]);
        continue;
      }
      EXPECT_EQ(Data(call.forward.h)[k], h[k]);
      EXPECT_EQ(Data(call.backward.grad_blocks[0])[k], grad[k]);
    }
    EXPECT_TRUE(hit);
  }
}

TEST(BlockAttnResTest, OverflowingSquaresGiveScoreZero) {
  Call call(2, false, 1, 64);
  std::fill_n(Data(call.forward.blocks[0]), 64, 1e25f);
  std::fill_n(Data(call.forward.blocks[1]), 64, 0.0f);
  std::fill_n(Data(call.forward.proj_weight), 64, 1e-3f);
  ASSERT_TRUE(RunArgs(call.forward).ok());
  EXPECT_EQ(Values(call.forward.alpha_cache), (std::vector<float>{0.5f, 0.5f}));
}

TEST(BlockAttnResTest, NoTokensZeroTheParameterGradients) {
  Call call(2, true, 0, 40);
  ASSERT_TRUE(RunArgs(call.forward).ok());
  ASSERT_TRUE(RunArgs(call.backward).ok());
  EXPECT_EQ(Values(call.backward.grad_proj_weight), std::vector<float>(40, 0.0f));
  EXPECT_EQ(Values(call.backward.grad_rmsnorm_gamma), std::vector<float>(40, 0.0f));
}

// The shapes that the operator is used at, with few tokens, against the reference.
TEST(BlockAttnResTest, ShapesOfRealModels) {
  std::vector<Case> cases;
  for (std::int64_t sources = 2; sources <= 9; ++sources) {
    cases.push_back({.seq = 2, .d = 7168, .sources = sources, .dtype = DType::kBFloat16});
  }
  cases.push_back({.seq = 2, .d = 2048, .sources = 66, .dtype = DType::kBFloat16});
  cases.push_back({.seq = 3, .d = 512, .sources = 128, .dtype = DType::kBFloat16});
  cases.push_back({.seq = 3, .d = 511, .sources = 9, .dtype = DType::kFloat16});
  cases.push_back({.seq = 1, .d = 7168, .sources = 9, .dtype = DType::kFloat32});
  for (const char* name : {"block_attn_res", "block_attn_res_backward"}) {
    for (Case c : cases) {
      c.variant = 1;
      const harness::Verdict verdict =
          harness::CheckCase(*FindOperator(name), c, 17, Context::Default());
      EXPECT_TRUE(verdict.ok) << name << " d=" << c.d << " L=" << c.sources << "\n"
                              << verdict.message;
    }
  }
}

// Large outputs are written past the caches; the bits are those of single tokens.
TEST(BlockAttnResTest, StreamedOutputsHaveTheSameBits) {
  const std::int64_t d = 1024, blocks = 3;
  const std::int64_t tokens = StreamingThreshold() / (d * 4) + 3;
  Call call(blocks, false, tokens, d);
  Plan plan;
  ASSERT_TRUE(Prepare(call.forward, &plan).ok());
  EXPECT_TRUE(plan.info().streaming);
  ASSERT_TRUE(plan.Run().ok());
  ASSERT_TRUE(Prepare(call.backward, &plan).ok());
  EXPECT_TRUE(plan.info().streaming);
  ASSERT_TRUE(plan.Run().ok());
  Call one(blocks, false, 1, d);
  for (const std::int64_t t : {std::int64_t{0}, tokens / 2, tokens - 1}) {
    const auto at = [&](TensorView view) {
      view.data = Data(view) + t * (view.numel() / tokens);
      view.sizes[0] = 1;
      return view;
    };
    for (std::size_t i = 0; i < 3; ++i) one.forward.blocks[i] = at(call.forward.blocks[i]);
    one.forward.proj_weight = call.forward.proj_weight;
    one.forward.rmsnorm_gamma = call.forward.rmsnorm_gamma;
    one.Share();
    one.backward.grad_h = at(call.backward.grad_h);
    ASSERT_TRUE(RunArgs(one.forward).ok());
    ASSERT_TRUE(RunArgs(one.backward).ok());
    EXPECT_EQ(Values(one.forward.h), Values(at(call.forward.h)));
    EXPECT_EQ(Values(one.backward.grad_blocks[2]), Values(at(call.backward.grad_blocks[2])));
  }
}

TEST(BlockAttnResTest, WorkspaceDoesNotGrowWithTokens) {
  Call few(2, false, 64 * 16, 32), many(2, false, 64 * 160, 32);
  Plan plan_few, plan_many;
  ASSERT_TRUE(Prepare(few.backward, &plan_few).ok());
  ASSERT_TRUE(Prepare(many.backward, &plan_many).ok());
  EXPECT_EQ(plan_few.workspace_bytes(), plan_many.workspace_bytes());
}

// Sources and gradients may be slices of stacked tensors, whose memory lies between each other.
TEST(BlockAttnResTest, TakesSlicesOfStackedTensors) {
  constexpr std::int64_t kT = 5, kL = 3, kD = 48;
  Call want(kL, false, kT, kD), call(kL, false, kT, kD);
  const TensorView stacked = call.memory.Tensor({kT, kL, kD});
  const TensorView grads = call.memory.Tensor({kT, kL, kD});
  for (std::int64_t l = 0; l < kL; ++l) {
    const auto i = static_cast<std::size_t>(l);
    const Dims sizes{kT, kD}, strides{kL * kD, 1};
    for (std::int64_t k = 0; k < kT * kD; ++k) {
      Data(stacked)[(k / kD * kL + l) * kD + k % kD] = Data(want.forward.blocks[i])[k];
    }
    call.forward.blocks[i] = TensorView(Data(stacked) + l * kD, DType::kFloat32, sizes, strides);
    call.backward.grad_blocks[i] =
        TensorView(Data(grads) + l * kD, DType::kFloat32, sizes, strides);
  }
  call.Share();
  ASSERT_TRUE(RunArgs(want.forward).ok());
  ASSERT_TRUE(RunArgs(want.backward).ok());
  ASSERT_TRUE(RunArgs(call.forward).ok());
  const Status status = RunArgs(call.backward);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Values(call.forward.h), Values(want.forward.h));
  for (std::int64_t l = 0; l < kL; ++l) {
    for (std::int64_t k = 0; k < kT * kD; ++k) {
      ASSERT_EQ(Data(grads)[(k / kD * kL + l) * kD + k % kD],
                Data(want.backward.grad_blocks[static_cast<std::size_t>(l)])[k]);
    }
  }
  call.backward.grad_blocks[1].data = Data(grads) + kD - 1;  // one element too early
  EXPECT_EQ(RunArgs(call.backward).code(), StatusCode::kInvalidArgument);
}

struct Bad {
  const char* words;
  StatusCode code;
  std::function<void(Call&)> spoil;
};

template <class Args>
void ExpectRefused(const std::vector<Bad>& list, Args Call::*args) {
  for (const Bad& bad : list) {
    Call call(3, true, 4, 20);
    bad.spoil(call);
    const Status status = RunArgs(call.*args);
    EXPECT_EQ(status.code(), bad.code) << bad.words;
    EXPECT_NE(status.message().find(bad.words), std::string::npos)
        << "no '" << bad.words << "' in: " << status.message();
  }
}

constexpr StatusCode kNull = StatusCode::kNullArgument;
constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;

TEST(BlockAttnResTest, RefusesBadForwardArguments) {
  const auto tensor = [](Call& c, const Dims& sizes) { return c.memory.Tensor(sizes); };
  ExpectRefused<BlockAttnResArgs>(
      {{"blocks has 0 tensors, expected 1..127", kInvalid,
        [](Call& c) { c.forward.blocks.clear(); }},
       {"blocks has 128 tensors, expected 1..127", kInvalid,
        [](Call& c) { c.forward.blocks.resize(128, c.forward.blocks[0]); }},
       {"blocks[1] is absent", kNull, [](Call& c) { c.forward.blocks[1] = TensorView(); }},
       {"proj_weight is absent", kNull, [](Call& c) { c.forward.proj_weight = TensorView(); }},
       {"h is absent", kNull, [](Call& c) { c.forward.h = TensorView(); }},
       {"blocks[2] has dtype float16, expected float32 like blocks[0]", kInvalid,
        [](Call& c) { c.forward.blocks[2].dtype = DType::kFloat16; }},
       {"partial_block has dtype bfloat16", kInvalid,
        [](Call& c) { c.forward.partial_block.dtype = DType::kBFloat16; }},
       {"proj_weight has dtype float16, expected float32", kInvalid,
        [](Call& c) { c.forward.proj_weight.dtype = DType::kFloat16; }},
       {"blocks[1] has shape (4, 21), expected (4, 20) to match blocks[0]", kInvalid,
        [&](Call& c) {
          c.forward.blocks[1] = tensor(c, {4, 21});
        }},
       {"partial_block has shape (5, 20), expected (4, 20)", kInvalid,
        [&](Call& c) {
          c.forward.partial_block = tensor(c, {5, 20});
        }},
       {"proj_weight has shape (21,), expected (20,)", kInvalid,
        [&](Call& c) { c.forward.proj_weight = tensor(c, {21}); }},
       {"rmsnorm_gamma has shape (1, 19), expected (1, 20)", kInvalid,
        [&](Call& c) {
          c.forward.rmsnorm_gamma = tensor(c, {1, 19});
        }},
       {"alpha_cache has shape (4, 3), expected (4, 4)", kInvalid,
        [&](Call& c) {
          c.forward.alpha_cache = tensor(c, {4, 3});
        }},
       {"rms_cache has shape (4, 4, 2), expected (4, 4, 1)", kInvalid,
        [&](Call& c) {
          c.forward.rms_cache = tensor(c, {4, 4, 2});
        }},
       {"scale is nan", kInvalid, [](Call& c) { c.forward.scale = NAN; }},
       {"rmsnorm_eps is -1", kInvalid, [](Call& c) { c.forward.rmsnorm_eps = -1; }},
       {"h overlaps blocks[1]", kInvalid, [](Call& c) { c.forward.h = c.forward.blocks[1]; }},
       {"blocks[0] has shape (4, 20) and a null address", kNull,
        [](Call& c) { c.forward.blocks[0].data = nullptr; }}},
      &Call::forward);
}

TEST(BlockAttnResTest, RefusesBadBackwardArguments) {
  ExpectRefused<BlockAttnResBackwardArgs>(
      {{"alpha_cache is absent", kNull, [](Call& c) { c.backward.alpha_cache = TensorView(); }},
       {"grad_blocks has 2 tensors, expected 3", kInvalid,
        [](Call& c) { c.backward.grad_blocks.pop_back(); }},
       {"grad_blocks[1] is absent", kNull,
        [](Call& c) { c.backward.grad_blocks[1] = TensorView(); }},
       {"grad_partial_block is absent", kNull,
        [](Call& c) { c.backward.grad_partial_block = TensorView(); }},
       {"expected none (partial_block is absent)", kInvalid,
        [](Call& c) { c.backward.partial_block = TensorView(); }},
       {"expected none (rmsnorm_gamma is absent)", kInvalid,
        [](Call& c) { c.backward.rmsnorm_gamma = TensorView(); }},
       {"grad_proj_weight has dtype bfloat16, expected float32 like proj_weight", kInvalid,
        [](Call& c) { c.backward.grad_proj_weight.dtype = DType::kBFloat16; }},
       {"grad_blocks[2] overlaps grad_blocks[0]", kInvalid,
        [](Call& c) { c.backward.grad_blocks[2] = c.backward.grad_blocks[0]; }}},
      &Call::backward);
}

TEST(BlockAttnResTest, InfersOutputsFromPartlyKnownShapes) {
  BlockAttnResBackwardArgs args;
  const TensorView block(nullptr, DType::kBFloat16, {kUnknown, 8, kUnknown});
  args.blocks = {block, TensorView(nullptr, DType::kBFloat16, {2, 8, kUnknown})};
  args.grad_h = block;
  args.proj_weight = TensorView(nullptr, DType::kFloat32, {64});
  args.alpha_cache = TensorView(nullptr, DType::kFloat32, {kUnknown, 8, 2});
  ASSERT_TRUE(InferBlockAttnResBackward(&args).ok());
  ASSERT_EQ(args.grad_blocks.size(), 2u);
  EXPECT_EQ(args.grad_blocks[0].sizes, (Dims{2, 8, 64}));
  EXPECT_EQ(args.grad_blocks[1].dtype, DType::kBFloat16);
  EXPECT_EQ(args.grad_proj_weight.dtype, DType::kFloat32);
  EXPECT_FALSE(args.grad_rmsnorm_gamma.defined());
}

}  // namespace
}  // namespace anabranch
