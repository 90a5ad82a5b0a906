// Sinkhorn in whatever operator it is a part of: the shapes of its caches, its eps, its iterations.
// Every pass of the operator table that has them is asked.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "anabranch/attn_res.h"
#include "src/core/check.h"
#include "src/ops/mhc_spec.h"
#include "src/tools/harness/harness.h"
#include "tests/ops/buffer.h"
#include "tests/ops/mhc_pre_call.h"

namespace anabranch {
namespace {

using harness::CaseTensors;
using harness::Layout;
using harness::Random;

constexpr std::int64_t kMaxIterations = specs::kMaxIterations;

// f(entry, case, its tensors) for every form that takes or makes the caches.
template <class F>
int ForCachedForms(const F& f) {
  int forms = 0;
  for (const OperatorEntry& entry : Operators()) {
    for (std::size_t variant = 0; variant < entry.variants.size(); ++variant) {
      Case c{.batch = 2, .seq = 3, .n = 4, .d = 8, .num_iters = 5};
      c.variant = static_cast<int>(variant);
      if (!entry.supports(c)) continue;
      Random random(5);
      CaseTensors tensors = Allocate(entry, c, Layout::kDense, random);
      bool cached = false;
      for (const TensorSpec& spec : tensors.specs) cached = cached || spec.name == "sum_out";
      if (!cached) continue;
      FillInputs(entry, c, tensors, random);
      f(entry, c, tensors);
      ++forms;
    }
  }
  return forms;
}

Status PrepareWith(const OperatorEntry& entry, const Case& c, const std::vector<TensorView>& t) {
  Plan plan;
  return entry.prepare(c, t, &plan, Context());
}

// Tokens in one dimension where x has two: the same memory, but not the shape that is agreed on.
TEST(SinkhornCaches, HaveTheLeadingDimensionsOfTheTokens) {
  const auto check = [](const OperatorEntry& entry, const Case& c, const CaseTensors& tensors) {
    ASSERT_TRUE(PrepareWith(entry, c, tensors.Views()).ok()) << harness::ToString(entry, c);
    for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
      const std::string& name = tensors.specs[k].name;
      const bool norms = name == "norm_out";
      if (!norms && name != "sum_out") continue;
      std::vector<TensorView> views = tensors.Views();
      EXPECT_EQ(views[k].sizes, norms ? (Dims{10, 2, 3, 4, 4}) : (Dims{10, 2, 3, 4}));
      // The number of steps is not known to the backward that learns it from sum_out.
      const std::string wanted = norms ? ", 2, 3, 4, 4) to match " : ", 2, 3, 4) to match ";
      const std::vector<Dims> others =
          norms ? std::vector<Dims>{{10, 6, 4, 4}, {10, 2, 3, 16}, {2, 3, 10, 4, 4}, {10, 6, 16}}
                : std::vector<Dims>{{10, 6, 4}, {60, 4}, {2, 3, 10, 4}, {10, 2, 3, 4, 1}};
      for (const Dims& sizes : others) {
        views[k] = TensorView(views[k].data, views[k].dtype, sizes);
        const std::string message = PrepareWith(entry, c, views).message();
        const std::string has = std::string(entry.name) + ": " + name + " has shape " +
                                ToString(sizes) + ", expected (";
        EXPECT_EQ(message.find(has), 0u) << harness::ToString(entry, c) << ": " << message;
        EXPECT_NE(message.find(wanted), std::string::npos) << message;
      }
    }
  };
  EXPECT_EQ(ForCachedForms(check), 8);
}

template <class Args>
void ExpectCaches(const Args& args, const Dims& tokens) {
  Dims sums = Concat(Concat({40}, tokens), {3});
  EXPECT_EQ(args.sum_out.sizes, sums);
  sums.push_back(3);
  EXPECT_EQ(args.norm_out.sizes, sums);
}

TEST(SinkhornCaches, AreInferredForAnyNumberOfTokenDimensions) {
  Dims tokens;
  for (int rank = 0; rank <= 5; ++rank) {
    MhcPreSinkhornArgs fused;
    fused.x = TensorView(nullptr, DType::kBFloat16, Concat(tokens, {3, 16}));
    fused.phi = TensorView(nullptr, DType::kFloat32, {15, 48});
    fused.alpha = TensorView(nullptr, DType::kFloat32, {3});
    fused.bias = TensorView(nullptr, DType::kFloat32, {15});
    fused.sum_out = TensorView(nullptr, DType::kFloat32, Concat(Concat({40}, tokens), {3}));
    ASSERT_TRUE(InferMhcPreSinkhorn(&fused).ok());
    ExpectCaches(fused, tokens);
    MhcSinkhornArgs alone;
    alone.logits = TensorView(nullptr, DType::kFloat32, Concat(tokens, {3, 3}));
    alone.norm_out = fused.norm_out;
    ASSERT_TRUE(InferMhcSinkhorn(&alone).ok());
    ExpectCaches(alone, tokens);
    alone.logits = TensorView(nullptr, DType::kFloat32, Concat(tokens, {9}));
    alone.sum_out = alone.h_res = TensorView();
    alone.n = 3;
    ASSERT_TRUE(InferMhcSinkhorn(&alone).ok());
    ExpectCaches(alone, tokens);
    tokens.push_back(2 + rank);
  }
}

// Outputs with more dimensions than a view can have are refused, not cut off.
TEST(SinkhornCaches, OfMoreDimensionsThanAViewHasAreRefused) {
  MhcSinkhornArgs wide;
  wide.logits = TensorView(nullptr, DType::kFloat32, {1, 1, 1, 1, 1, 1, 3, 3});
  wide.sum_out = TensorView(nullptr, DType::kFloat32, {40, 1, 1, 1, 1, 1, 1, 3});
  EXPECT_EQ(InferMhcSinkhorn(&wide).message(),
            "mhc_sinkhorn: norm_out has 9 dimensions, expected at most 8: logits has shape "
            "(1, 1, 1, 1, 1, 1, 3, 3)");
  AttnResPrepareArgs prepare;
  prepare.blocks = {TensorView(nullptr, DType::kFloat32, {1, 1, 1, 1, 1, 1, 1, 8})};
  prepare.queries = TensorView(nullptr, DType::kFloat32, {2, 8});
  prepare.enable_rmsnorm = false;
  const std::string message = InferAttnResPrepare(&prepare).message();
  EXPECT_NE(message.find("o has 9 dimensions, expected at most 8: blocks[0] has shape"),
            std::string::npos)
      << message;
}

// One limit in every pass that iterates, with and without caches.
TEST(SinkhornIterations, HaveOneLimit) {
  int passes = 0;
  for (const OperatorEntry& entry : Operators()) {
    const std::string op = entry.op;
    if (op != "mhc_sinkhorn" && op != "mhc_pre_sinkhorn") continue;
    ++passes;
    Case c{.seq = 2, .n = 4, .d = 8, .num_iters = 1};
    while (!entry.supports(c)) ++c.variant;
    Random random(6);
    CaseTensors tensors = Allocate(entry, c, Layout::kDense, random);
    for (std::int64_t iters : {std::int64_t{0}, std::int64_t{-1}, kMaxIterations + 1,
                               std::int64_t{1} << 40, INT64_MAX}) {
      c.num_iters = iters;
      EXPECT_EQ(PrepareWith(entry, c, tensors.Views()).message(),
                std::string(entry.name) + ": options.num_iters is " + std::to_string(iters) +
                    ", expected 1..1000000");
    }
    c.num_iters = kMaxIterations;
    EXPECT_TRUE(PrepareWith(entry, c, tensors.Views()).ok()) << entry.name;
  }
  EXPECT_EQ(passes, 4);
}

// The number that a backward's caches say has the same limit.
TEST(SinkhornIterations, OfCachesHaveTheSameLimit) {
  MhcPreSinkhornBackwardArgs args;
  const std::int64_t steps = 2 * kMaxIterations;
  args.x = args.grad_x = TensorView(nullptr, DType::kFloat32, {1, 2, 8});
  args.grad_h_in = TensorView(nullptr, DType::kFloat32, {1, 8});
  args.h_pre = args.grad_h_post = TensorView(nullptr, DType::kFloat32, {1, 2});
  args.grad_h_res = TensorView(nullptr, DType::kFloat32, {1, 2, 2});
  args.phi = TensorView(nullptr, DType::kFloat32, {8, 16});
  args.alpha = TensorView(nullptr, DType::kFloat32, {3});
  args.bias = TensorView(nullptr, DType::kFloat32, {8});
  args.h_mix = TensorView(nullptr, DType::kFloat32, {1, 8});
  args.inv_rms = TensorView(nullptr, DType::kFloat32, {1});
  const auto infer = [&](std::int64_t count) {
    MhcPreSinkhornBackwardArgs all = args;
    all.sum_out = TensorView(nullptr, DType::kFloat32, {count, 1, 2});
    all.norm_out = TensorView(nullptr, DType::kFloat32, {count, 1, 2, 2});
    return InferMhcPreSinkhornBackward(&all);
  };
  EXPECT_TRUE(infer(2).ok()) << infer(2).message();
  EXPECT_TRUE(infer(steps).ok());
  for (std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, steps + 2}) {
    EXPECT_EQ(infer(count).message(), "mhc_pre_sinkhorn_backward: sum_out has shape (" +
                                          std::to_string(count) +
                                          ", 1, 2), expected an even number of normalisations, "
                                          "2..2000000")
        << count;
  }
}

// Each eps does what its name says, in every operator that reads it, and neither is ignored.
TEST(SinkhornEps, AndPreEpsAreTwoNumbers) {
  const auto run = [](double pre_eps, double sinkhorn_eps) {
    PreCall call(2, 8);
    call.SetLogits({1, 2, 3, 4, 0, 1, 0, 1, 2, 2, 1, 1, 3, 0, 0, 3});
    call.fused.options.pre_eps = pre_eps;
    call.fused.options.sinkhorn_eps = sinkhorn_eps;
    EXPECT_TRUE(PreCall::Run(call.fused).ok());
    return call;
  };
  const PreCall plain = run(0, 0);
  const PreCall pre = run(0.25, 0);
  const PreCall sinkhorn = run(0, 0.25);
  EXPECT_EQ(pre.h_res, plain.h_res);
  EXPECT_EQ(pre.h_pre[0], plain.h_pre[0] + 0.25f);
  EXPECT_NE(pre.h_in, plain.h_in);
  EXPECT_NE(sinkhorn.h_res, plain.h_res);
  EXPECT_EQ(sinkhorn.h_pre, plain.h_pre);
  EXPECT_EQ(sinkhorn.h_in, plain.h_in);
  EXPECT_EQ(sinkhorn.h_post, plain.h_post);
}

}  // namespace
}  // namespace anabranch
