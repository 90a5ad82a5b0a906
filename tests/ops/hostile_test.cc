// Arguments that nobody means: what fuzzing and reading found to be taken, or to overflow on the
// way to being refused. Each must be refused with a message, whatever the values.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "anabranch/attn_res.h"
#include "anabranch/mhc.h"
#include "src/ops/catalog.h"
#include "tests/words.h"

namespace anabranch {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 40;

// Views of memory that nobody may touch.
TensorView View(DType dtype, const Dims& sizes) {
  return TensorView(reinterpret_cast<void*>(std::uintptr_t{1} << 20), dtype, sizes);
}
TensorView Float(const Dims& sizes) { return View(DType::kFloat32, sizes); }

void ExpectRefused(const Status& status, const std::string& words) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
}

// Calls `check(entry, case, specs)` for every operator and variant, with `seq` tokens.
template <class Check>
void ForEveryVariant(std::int64_t seq, const Check& check) {
  for (const OperatorEntry& entry : Operators()) {
    Case c;
    c.seq = seq;
    c.d = 16;
    c.num_iters = 2;
    for (c.variant = 0; c.variant < static_cast<int>(entry.variants.size()); ++c.variant) {
      if (!entry.supports(c)) continue;
      SCOPED_TRACE(std::string(entry.name) + ": " +
                   entry.variants[static_cast<std::size_t>(c.variant)]);
      check(entry, c, entry.tensors(c));
    }
  }
}

// What a description says of memory must be possible: nothing lies at address zero or below.
TEST(HostileTest, MemoryAtZeroOrBelow) {
  ForEveryVariant(
      2, [](const OperatorEntry& entry, const Case& c, const std::vector<TensorSpec>& specs) {
        for (std::size_t k = 0; k < specs.size(); ++k) {
          std::vector<TensorView> views;
          std::uintptr_t address = std::uintptr_t{1} << 30;
          for (const TensorSpec& spec : specs) {
            views.emplace_back(reinterpret_cast<void*>(address), spec.dtype, spec.sizes);
            address += std::uintptr_t{1} << 30;
          }
          for (int i = 0; i < views[k].rank(); ++i) {
            if (views[k].sizes[i] < 2) continue;
            const std::int64_t before = views[k].strides[i];
            const auto elements = static_cast<std::int64_t>(
                reinterpret_cast<std::uintptr_t>(views[k].data) / DTypeSize(views[k].dtype));
            // With two elements the second stride leads to null.
            for (std::int64_t stride : {-(std::int64_t{1} << 50), -elements}) {
              views[k].strides[i] = stride;
              Plan plan;
              const Status status = entry.prepare(c, views, &plan, Context::Default());
              EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << specs[k].name << " " << i;
              EXPECT_TRUE(HasWords(status.message(), specs[k].name)) << status.message();
            }
            views[k].strides[i] = before;
          }
        }
      });
}

// The strides of a tensor without elements may be anything.
TEST(HostileTest, StridesWithoutTokens) {
  ForEveryVariant(
      0, [](const OperatorEntry& entry, const Case& c, const std::vector<TensorSpec>& specs) {
        for (std::int64_t stride : {INT64_MIN, INT64_MAX, INT64_MIN / 2 + 1}) {
          std::vector<std::vector<double>> memory;
          std::vector<TensorView> views;
          for (const TensorSpec& spec : specs) {
            TensorView view(nullptr, spec.dtype, spec.sizes);
            memory.emplace_back(static_cast<std::size_t>(view.numel()), 0.0);
            if (view.numel() == 0) {
              for (int i = 0; i < view.rank(); ++i) view.strides[i] = stride;
            } else {
              view.data = memory.back().data();
            }
            views.push_back(view);
          }
          Plan plan;
          const Status status = entry.prepare(c, views, &plan, Context::Default());
          ASSERT_TRUE(status.ok()) << status.message();
          EXPECT_TRUE(plan.Run().ok());
        }
      });
}

TEST(HostileTest, SinkhornIterations) {
  for (std::int64_t iters :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{-2}, INT64_MAX, INT64_MIN, INT64_MAX / 2}) {
    MhcSinkhornArgs forward;
    forward.logits = Float({2, 4, 4});
    forward.h_res = Float({2, 4, 4});
    forward.options.num_iters = iters;
    Plan plan;
    ExpectRefused(Prepare(forward, &plan), "num_iters is " + std::to_string(iters));
    forward.sum_out = Float({2, 2, 4});
    forward.norm_out = Float({2, 2, 4, 4});
    ExpectRefused(Prepare(forward, &plan), "num_iters is " + std::to_string(iters));
    MhcSinkhornBackwardArgs backward;
    backward.grad_h_res = backward.logits = Float({2, 4, 4});
    backward.grad_logits = Float({2, 4, 4});
    backward.options.num_iters = iters;
    ExpectRefused(Prepare(backward, &plan), "num_iters is " + std::to_string(iters));
  }
}

TEST(HostileTest, SinkhornStreams) {
  for (std::int64_t n : {std::int64_t{-1}, std::int64_t{-4}, kHuge, INT64_MAX, INT64_MIN}) {
    MhcSinkhornArgs args;
    args.logits = Float({2, 16});
    args.h_res = Float({2, 16});
    args.n = n;
    Plan plan;
    ExpectRefused(Prepare(args, &plan), "n is " + std::to_string(n));
  }
}

TEST(HostileTest, PreSinkhornIterations) {
  for (std::int64_t iters : {std::int64_t{0}, std::int64_t{-1}, INT64_MAX, INT64_MIN}) {
    MhcPreSinkhornArgs args;
    args.x = Float({2, 4, 8});
    args.phi = Float({24, 32});
    args.alpha = Float({3});
    args.bias = Float({24});
    args.h_in = Float({2, 8});
    args.h_post = Float({2, 4});
    args.h_res = Float({2, 4, 4});
    args.options.num_iters = iters;
    Plan plan;
    ExpectRefused(Prepare(args, &plan), "num_iters is " + std::to_string(iters));
  }
}

// n! of a huge n is never computed.
TEST(HostileTest, PermutationsOfManyStreams) {
  for (std::int64_t n : {std::int64_t{0}, std::int64_t{6}, std::int64_t{25}, kHuge}) {
    MhcPreArgs args;
    args.x = Float({2, n, 1});
    args.phi = Float({24, 32});
    args.alpha = Float({3});
    args.bias = Float({24});
    args.h_in = Float({2, 1});
    args.h_post = Float({2, n});
    args.h_res = Float({2, 24});
    args.residual = Residual::kPermutation;
    Plan plan;
    ExpectRefused(Prepare(args, &plan), "n (permutation form) is " + std::to_string(n));
  }
}

// In shape inference n may come from another tensor than x, and has the same limits there.
TEST(HostileTest, InferredStreams) {
  for (const Residual residual : {Residual::kMatrix, Residual::kPermutation}) {
    MhcPreArgs args;
    args.x = Float({2, kUnknown, 8});
    args.phi = Float({kUnknown, kUnknown});
    args.alpha = Float({3});
    args.bias = Float({kUnknown});
    args.h_post = Float({2, kHuge});
    args.residual = residual;
    ExpectRefused(InferMhcPre(&args), "is " + std::to_string(kHuge));
  }
}

// Unknown sizes are for shape inference only: a call has sizes.
TEST(HostileTest, UnknownSizesAreNoCall) {
  for (int dimension = 0; dimension < 3; ++dimension) {
    Dims sizes{2, 4, 8};
    sizes[dimension] = kUnknown;
    MhcPostArgs args;
    args.x = Float(sizes);
    args.h_out = Float({sizes[0], sizes[2]});
    args.h_post = Float({sizes[0], sizes[1]});
    args.y = Float(sizes);
    Plan plan;
    ExpectRefused(Prepare(args, &plan), "expected sizes >= 0");
    args.x = Float({2, 4, 8});
    ExpectRefused(Prepare(args, &plan), "expected sizes >= 0");
  }
}

// An output that would have nine dimensions: one more than there are, and none is read past the
// end.
TEST(HostileTest, NineDimensions) {
  const Dims eight{1, 1, 1, 1, 1, 1, 1, 8};
  Dims nine{2, 1, 1, 1, 1, 1, 1, 1};
  nine.push_back(8);
  AttnResPrepareArgs args;
  args.blocks = {Float(eight)};
  args.queries = Float({2, 8});
  args.o = Float(nine);
  args.m = args.l = Float({2, 1, 1, 1, 1, 1, 1, 1});
  Plan plan;
  ExpectRefused(Prepare(args, &plan), "o has shape (2, 1, 1, 1, 1, 1, 1, 1, ...)");
  MhcSinkhornArgs sinkhorn;
  sinkhorn.logits = sinkhorn.h_res = Float({1, 1, 1, 1, 1, 1, 4, 4});
  sinkhorn.options.num_iters = 1;
  Dims sums{2, 1, 1, 1, 1, 1, 1, 4};
  sinkhorn.sum_out = Float(sums);
  sums.push_back(4);
  sinkhorn.norm_out = Float(sums);
  ExpectRefused(Prepare(sinkhorn, &plan), "norm_out has shape");
}

// Tensors without elements may have no address, and any strides.
TEST(HostileTest, NoTokensNoAddress) {
  const auto empty = [](const Dims& sizes, const Dims& strides) {
    return TensorView(nullptr, DType::kFloat32, sizes, strides);
  };
  std::vector<float> queries(16), gradient(16, 7.0f);
  AttnResPrepareBackwardArgs args;
  args.grad_o = empty({2, 0, 8}, {INT64_MAX, INT64_MAX, INT64_MAX});
  args.grad_m = args.grad_l = empty({2, 0}, {INT64_MIN, 1});
  args.blocks = args.grad_blocks = {empty({0, 8}, {8, 1})};
  args.queries = TensorView(queries.data(), DType::kFloat32, {2, 8});
  args.grad_queries = TensorView(gradient.data(), DType::kFloat32, {2, 8});
  Plan plan;
  const Status status = Prepare(args, &plan);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(plan.Run().ok());
  EXPECT_EQ(gradient, std::vector<float>(16, 0.0f));
}

}  // namespace
}  // namespace anabranch
