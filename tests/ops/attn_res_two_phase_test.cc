#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <vector>

#include "src/core/parallel.h"
#include "src/tools/harness/harness.h"
#include "tests/ops/attn_res_call.h"
#include "tests/ops/buffer.h"

namespace anabranch {
namespace {

using attn_test::Call;
using attn_test::Data;
using attn_test::Memory;
using attn_test::RunArgs;
using attn_test::Values;

TensorView Slice(const TensorView& t, std::int64_t s) {
  TensorView part(static_cast<float*>(t.data) + s * t.strides[0], t.dtype, {});
  for (int i = 1; i < t.rank(); ++i) {
    part.sizes.push_back(t.sizes[i]);
    part.strides.push_back(t.strides[i]);
  }
  return part;
}

void ExpectClose(const TensorView& got, const TensorView& want, double tolerance) {
  double scale = 0;
  for (float v : Values(want)) scale = std::max(scale, std::abs(static_cast<double>(v)));
  for (std::int64_t k = 0; k < want.numel(); ++k) {
    ASSERT_NEAR(Data(got)[k], Data(want)[k], tolerance * scale) << k;
  }
}

// S queries over N blocks, then a partial block of its own for each: forward and backward equal
// the direct form's.
TEST(AttnResTwoPhaseTest, EqualsTheDirectForm) {
  constexpr std::int64_t kBlocks = 4, kTokens = 6, kD = 70, kQueries = 3;
  Memory memory;
  harness::Random random(8);
  AttnResPrepareArgs prepare;
  AttnResPrepareBackwardArgs prepare_back;
  for (std::int64_t i = 0; i < kBlocks; ++i) {
    prepare.blocks.push_back(memory.Random({kTokens, kD}, random));
    prepare_back.grad_blocks.push_back(memory.Tensor({kTokens, kD}));
  }
  prepare.queries = memory.Random({kQueries, kD}, random, 0.3);
  prepare.rmsnorm_gamma = memory.Random({kD}, random);
  prepare.scale = 1.25;
  prepare.o = memory.Tensor({kQueries, kTokens, kD});
  prepare.m = memory.Tensor({kQueries, kTokens});
  prepare.l = memory.Tensor({kQueries, kTokens});
  ASSERT_TRUE(RunArgs(prepare).ok());
  prepare_back.blocks = prepare.blocks;
  prepare_back.queries = prepare.queries;
  prepare_back.rmsnorm_gamma = prepare.rmsnorm_gamma;
  prepare_back.scale = prepare.scale;
  prepare_back.grad_o = memory.Tensor({kQueries, kTokens, kD});
  prepare_back.grad_m = memory.Tensor({kQueries, kTokens});
  prepare_back.grad_l = memory.Tensor({kQueries, kTokens});
  prepare_back.grad_queries = memory.Tensor({kQueries, kD});
  prepare_back.grad_rmsnorm_gamma = memory.Tensor({kD});

  const TensorView want_blocks = memory.Tensor({kTokens, kD});  // of block 0, all queries
  for (std::int64_t s = 0; s < kQueries; ++s) {
    Call direct(kBlocks, true, kTokens, kD, 0.3, 100 + static_cast<std::uint64_t>(s));
    direct.forward.blocks = prepare.blocks;
    direct.forward.proj_weight = Slice(prepare.queries, s);
    direct.forward.rmsnorm_gamma = prepare.rmsnorm_gamma;
    direct.forward.scale = prepare.scale;
    direct.Share();
    ASSERT_TRUE(RunArgs(direct.forward).ok());
    ASSERT_TRUE(RunArgs(direct.backward).ok());

    AttnResMergeArgs merge;
    merge.o = Slice(prepare.o, s);
    merge.m = Slice(prepare.m, s);
    merge.l = Slice(prepare.l, s);
    merge.v = direct.forward.partial_block;
    merge.query = direct.forward.proj_weight;
    merge.rmsnorm_gamma = prepare.rmsnorm_gamma;
    merge.scale = prepare.scale;
    merge.h = memory.Tensor({kTokens, kD});
    ASSERT_TRUE(RunArgs(merge).ok());
    ExpectClose(merge.h, direct.forward.h, 1e-6);

    AttnResMergeBackwardArgs back;
    back.grad_h = direct.backward.grad_h;
    back.o = merge.o;
    back.m = merge.m;
    back.l = merge.l;
    back.v = merge.v;
    back.query = merge.query;
    back.rmsnorm_gamma = merge.rmsnorm_gamma;
    back.scale = merge.scale;
    back.grad_o = Slice(prepare_back.grad_o, s);
    back.grad_m = Slice(prepare_back.grad_m, s);
    back.grad_l = Slice(prepare_back.grad_l, s);
    back.grad_v = memory.Tensor({kTokens, kD});
    back.grad_query = memory.Tensor({kD});
    back.grad_rmsnorm_gamma = memory.Tensor({kD});
    ASSERT_TRUE(RunArgs(back).ok());
    ExpectClose(back.grad_v, direct.backward.grad_partial_block, 1e-5);
    for (std::int64_t k = 0; k < kTokens * kD; ++k) {
      Data(want_blocks)[k] += Data(direct.backward.grad_blocks[0])[k];
    }
    // Both phases together give the query's gradient; kept in the direct call's tensor.
    for (std::int64_t k = 0; k < kD; ++k) {
      Data(direct.backward.grad_proj_weight)[k] -= Data(back.grad_query)[k];
    }
    AttnResPrepareBackwardArgs alone = prepare_back;
    alone.queries = TensorView(Data(prepare.queries) + s * kD, DType::kFloat32, {1, kD});
    alone.grad_o = TensorView(back.grad_o.data, DType::kFloat32, {1, kTokens, kD});
    alone.grad_m = TensorView(back.grad_m.data, DType::kFloat32, {1, kTokens});
    alone.grad_l = TensorView(back.grad_l.data, DType::kFloat32, {1, kTokens});
    alone.grad_queries = memory.Tensor({1, kD});
    ASSERT_TRUE(RunArgs(alone).ok());
    ExpectClose(alone.grad_queries, direct.backward.grad_proj_weight, 2e-5);
  }
  ASSERT_TRUE(RunArgs(prepare_back).ok());
  ExpectClose(prepare_back.grad_blocks[0], want_blocks, 1e-5);
}

TEST(AttnResTwoPhaseTest, WithoutSourcesAMergeGivesTheSource) {
  Memory memory;
  harness::Random random(9);
  AttnResPrepareArgs prepare;
  prepare.queries = memory.Random({2, 40}, random);
  prepare.o = memory.Tensor({2, 3, 40}, -7);
  prepare.m = memory.Tensor({2, 3}, -7);
  prepare.l = memory.Tensor({2, 3}, -7);
  ASSERT_TRUE(RunArgs(prepare).ok());
  EXPECT_EQ(Values(prepare.o), std::vector<float>(240, 0.0f));
  EXPECT_EQ(Values(prepare.m), std::vector<float>(6, -FLT_MAX));
  EXPECT_EQ(Values(prepare.l), std::vector<float>(6, 0.0f));
  AttnResMergeArgs merge;
  merge.o = Slice(prepare.o, 1);
  merge.m = Slice(prepare.m, 1);
  merge.l = Slice(prepare.l, 1);
  merge.v = memory.Random({3, 40}, random);
  merge.query = Slice(prepare.queries, 1);
  merge.h = memory.Tensor({3, 40});
  ASSERT_TRUE(RunArgs(merge).ok());
  EXPECT_EQ(Values(merge.h), Values(merge.v));
}

TEST(AttnResTwoPhaseTest, NoTokensZeroTheParameterGradients) {
  Memory memory;
  harness::Random random(9);
  AttnResPrepareBackwardArgs args;
  args.blocks = {memory.Tensor({0, 20})};
  args.queries = memory.Random({2, 20}, random);
  args.rmsnorm_gamma = memory.Random({2, 20}, random);
  args.grad_o = memory.Tensor({2, 0, 20});
  args.grad_m = memory.Tensor({2, 0});
  args.grad_l = memory.Tensor({2, 0});
  args.grad_blocks = {memory.Tensor({0, 20})};
  args.grad_queries = memory.Tensor({2, 20}, -7);
  args.grad_rmsnorm_gamma = memory.Tensor({2, 20}, -7);
  ASSERT_TRUE(RunArgs(args).ok());
  EXPECT_EQ(Values(args.grad_queries), std::vector<float>(40, 0.0f));
  EXPECT_EQ(Values(args.grad_rmsnorm_gamma), std::vector<float>(40, 0.0f));
}

TEST(AttnResTwoPhaseTest, OneSourceMaximumTakesTheWholeGradientOfM) {
  Memory memory;
  harness::Random random(4);
  const TensorView block = memory.Random({1, 8}, random);
  AttnResPrepareBackwardArgs args;
  args.blocks = {block};
  args.queries = memory.Random({1, 8}, random);
  args.enable_rmsnorm = false;
  args.grad_o = memory.Tensor({1, 1, 8});
  args.grad_m = memory.Tensor({1, 1}, 2);
  args.grad_l = memory.Tensor({1, 1}, 5);  // l = 1 for one source, whatever its score
  args.grad_blocks = {memory.Tensor({1, 8})};
  args.grad_queries = memory.Tensor({1, 8});
  ASSERT_TRUE(RunArgs(args).ok());
  for (std::int64_t k = 0; k < 8; ++k) {  // m = query . block
    EXPECT_NEAR(Data(args.grad_blocks[0])[k], 2 * Data(args.queries)[k], 1e-6);
    EXPECT_NEAR(Data(args.grad_queries)[k], 2 * Data(block)[k], 1e-6);
  }
}

TEST(AttnResTwoPhaseTest, ShapesOfRealModels) {
  for (const char* name : {"attn_res_prepare", "attn_res_prepare_backward", "attn_res_merge",
                           "attn_res_merge_backward"}) {
    const Case c{.seq = 2, .n = 4, .d = 7168, .sources = 8, .dtype = DType::kBFloat16};
    const harness::Verdict verdict =
        harness::CheckCase(*FindOperator(name), c, 3, Context::Default());
    EXPECT_TRUE(verdict.ok) << name << "\n" << verdict.message;
  }
}

void ExpectMessage(const Status& status, StatusCode code, const std::string& words) {
  EXPECT_EQ(status.code(), code) << words;
  EXPECT_NE(status.message().find(words), std::string::npos)
      << "no '" << words << "' in: " << status.message();
}

// Large outputs of a merge are written past the caches; the bits are those of single tokens.
TEST(AttnResTwoPhaseTest, StreamedMergesHaveTheSameBits) {
  const std::int64_t d = 1000, tokens = StreamingThreshold() / (d * 2) + 3;
  harness::Random random(11);
  Buffer o(DType::kFloat32, {tokens, d}, &random, 1), m(DType::kFloat32, {tokens}, &random, 1);
  Buffer l(DType::kFloat32, {tokens});
  Buffer v(DType::kBFloat16, {tokens, d}, &random, 1), grad(v.dtype, v.shape, &random, 1);
  Buffer query(DType::kFloat32, {d}, &random, 0.1), grad_query(DType::kFloat32, {d});
  Buffer h(v.dtype, v.shape), grad_o(o.dtype, o.shape), grad_v(v.dtype, v.shape);
  Buffer grad_m(m.dtype, m.shape), grad_l(m.dtype, m.shape);
  const TensorView ones = l.View();
  for (std::int64_t t = 0; t < tokens; ++t) static_cast<float*>(ones.data)[t] = 2;
  const auto at = [](Buffer& buffer, std::int64_t first, std::int64_t count) {
    return SomeTokens(buffer.View(), first, count);
  };
  const auto run = [&](std::int64_t first, std::int64_t count, bool streaming) {
    AttnResMergeArgs a;
    a.o = at(o, first, count);
    a.m = at(m, first, count);
    a.l = at(l, first, count);
    a.v = at(v, first, count);
    a.query = query.View();
    a.h = at(h, first, count);
    AttnResMergeBackwardArgs b;
    b.grad_h = at(grad, first, count);
    b.o = a.o;
    b.m = a.m;
    b.l = a.l;
    b.v = a.v;
    b.query = a.query;
    b.grad_o = at(grad_o, first, count);
    b.grad_m = at(grad_m, first, count);
    b.grad_l = at(grad_l, first, count);
    b.grad_v = at(grad_v, first, count);
    b.grad_query = grad_query.View();
    bool streamed = !streaming;
    MustRun(a, Context::Default(), &streamed);
    EXPECT_EQ(streamed, streaming);
    MustRun(b, Context::Default(), &streamed);
    EXPECT_EQ(streamed, streaming);
  };
  run(0, tokens, true);
  const auto all = std::vector{h.bytes, grad_o.bytes, grad_v.bytes, grad_m.bytes, grad_l.bytes};
  for (const std::int64_t t : {std::int64_t{0}, std::int64_t{1}, tokens / 2, tokens - 1}) {
    run(t, 1, false);
    EXPECT_TRUE(all ==
                (std::vector{h.bytes, grad_o.bytes, grad_v.bytes, grad_m.bytes, grad_l.bytes}))
        << t;
  }
}

TEST(AttnResTwoPhaseTest, RefusesBadArguments) {
  Memory memory;
  AttnResPrepareArgs args;
  args.queries = memory.Tensor({2, 20});
  ExpectMessage(InferAttnResPrepare(&args), StatusCode::kNullArgument, "o is absent");
  args.blocks = {memory.Tensor({4, 20}), memory.Tensor({4, 20})};
  args.o = memory.Tensor({2, 4, 20});
  args.m = memory.Tensor({2, 4});
  args.l = memory.Tensor({2, 4});
  ASSERT_TRUE(RunArgs(args).ok());
  const AttnResPrepareArgs good = args;
  args.blocks[1] = memory.Tensor({4, 19});
  ExpectMessage(RunArgs(args), StatusCode::kInvalidArgument, "blocks[1] has shape (4, 19)");
  args = good;
  args.queries = memory.Tensor({2, 19});
  ExpectMessage(RunArgs(args), StatusCode::kInvalidArgument, "blocks[0] has shape (4, 20)");
  args = good;
  args.queries = memory.Tensor({20});
  ExpectMessage(RunArgs(args), StatusCode::kInvalidArgument, "expected [S, D]");
  args = good;
  args.m = memory.Tensor({2, 5});
  ExpectMessage(RunArgs(args), StatusCode::kInvalidArgument, "m has shape (2, 5), expected (2, 4)");
  args = good;
  args.rmsnorm_gamma = memory.Tensor({3, 20});
  ExpectMessage(RunArgs(args), StatusCode::kInvalidArgument, "rmsnorm_gamma has shape (3, 20)");
  args = good;
  args.blocks.resize(128, args.blocks[0]);
  ExpectMessage(RunArgs(args), StatusCode::kInvalidArgument, "blocks has 128 tensors");

  AttnResMergeArgs merge;
  merge.o = memory.Tensor({4, 20});
  merge.m = memory.Tensor({4});
  merge.l = memory.Tensor({4});
  merge.v = memory.Tensor({4, 20});
  merge.query = memory.Tensor({20});
  ExpectMessage(RunArgs(merge), StatusCode::kNullArgument, "h is absent");
  merge.h = memory.Tensor({4, 20});
  merge.l = memory.Tensor({3});
  ExpectMessage(RunArgs(merge), StatusCode::kInvalidArgument, "l has shape (3,), expected (4,)");
}

}  // namespace
}  // namespace anabranch
