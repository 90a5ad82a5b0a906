// mhc_pre, mhc_pre_sinkhorn and mhc_head beyond what holds for every operator of the table: golden
// values, what other documents have differently, independence of the batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "anabranch/mhc.h"
#include "src/core/parallel.h"
#include "src/tools/harness/harness.h"
#include "tests/ops/mhc_pre_call.h"

namespace anabranch {
namespace {

using harness::Bits;
using harness::CaseTensors;
using harness::Layout;
using harness::Random;
using harness::ReadAll;
using harness::WriteAll;

TEST(MhcPreTest, ReciprocalRmsOfAConstant) {
  PreCall call;
  std::fill(call.x.begin(), call.x.end(), 1e-3f);
  ASSERT_TRUE(PreCall::Run(call.pre).ok());
  EXPECT_NEAR(call.inv_rms[0], 707.107, 1e-3);
}

TEST(MhcPreTest, GatesHaveEpsWhereTheyShould) {
  PreCall call;
  std::fill(call.bias.begin(), call.bias.begin() + 8, -200.0f);  // sigmoids are zero
  call.pre.options.pre_eps = call.fused.options.pre_eps = 0.25;
  for (int fused = 0; fused < 2; ++fused) {
    ASSERT_TRUE((fused ? PreCall::Run(call.fused) : PreCall::Run(call.pre)).ok());
    for (float v : call.h_pre) EXPECT_EQ(v, 0.25f);
    for (float v : call.h_post) EXPECT_EQ(v, 0.0f);
    for (float v : call.h_in) EXPECT_EQ(v, 4 * 0.25f * 0.5f);
  }
  std::fill(call.bias.begin(), call.bias.begin() + 8, 200.0f);
  ASSERT_TRUE(PreCall::Run(call.pre).ok());
  for (float v : call.h_post) EXPECT_EQ(v, 2.0f);
  call.pre.options.post_multiplier = 3;
  ASSERT_TRUE(PreCall::Run(call.pre).ok());
  for (float v : call.h_post) EXPECT_EQ(v, 3.0f);
}

TEST(MhcPreTest, ResidualPartLeavesAsLogits) {
  PreCall call;
  for (std::size_t k = 0; k < 24; ++k) call.bias[k] = static_cast<float>(k) - 10;
  ASSERT_TRUE(PreCall::Run(call.pre).ok());
  for (std::size_t k = 0; k < 16; ++k) EXPECT_EQ(call.h_res[k], call.bias[8 + k]);
}

// Softmax, + eps, COLUMN step first, then (row, column) pairs.
TEST(MhcPreSinkhornTest, GoldenValues) {
  PreCall call;
  call.SetLogits({2, 0, 0, 0, 0, 0, 3, 0, 0, 1, 0, 0, 0, 0, 0, -1});
  const auto expect = [&](std::int64_t iters, const std::vector<double>& want) {
    call.fused.options.num_iters = iters;
    ASSERT_TRUE(PreCall::Run(call.fused).ok());
    for (std::size_t k = 0; k < want.size(); ++k) {
      EXPECT_NEAR(call.h_res[k], want[k], 5e-7) << iters << " iterations, element " << k;
    }
  };
  expect(1, {0.579957936, 0.105559410, 0.066932430, 0.227187018});
  expect(2, {0.597791859, 0.117320559, 0.060164068, 0.242686516});
  expect(20, {0.592519750, 0.116562194, 0.053291302, 0.237625758, 0.053291301, 0.077463348,
              0.711326190, 0.157918157, 0.116562193, 0.460564612, 0.077463349, 0.345408847,
              0.237625757, 0.345408846, 0.157918159, 0.259046239});
  call.SetLogits(std::vector<float>(16, 0.0f));
  expect(20, std::vector<double>(16, 0.24999975));
  call.SetLogits({10, 0, 0, 0, 0, 10, 0, 0, 0, 0, 10, 0, 0, 0, 0, 10});
  expect(20, {0.999859819, 4.639e-5, 4.639e-5, 4.639e-5});
}

TEST(MhcPreSinkhornTest, EqualsMhcPreBitForBit) {
  PreCall step(21, 70);
  Random random(7);
  for (auto* values : {&step.x, &step.phi, &step.bias}) {
    for (float& v : *values) v = static_cast<float>(random.Normal());
  }
  ASSERT_TRUE(PreCall::Run(step.pre).ok());
  const std::vector<float> want[] = {step.h_in, step.h_post, step.inv_rms, step.h_mix, step.h_pre};
  ASSERT_TRUE(PreCall::Run(step.fused).ok());
  EXPECT_EQ(step.h_in, want[0]);
  EXPECT_EQ(step.h_post, want[1]);
  EXPECT_EQ(step.inv_rms, want[2]);
  EXPECT_EQ(step.h_mix, want[3]);
  EXPECT_EQ(step.h_pre, want[4]);
}

TEST(MhcPreTest, ZeroRowsAreFiniteWithNormEpsAndIeeeWithout) {
  PreCall call(3);
  std::fill_n(call.x.begin() + 4 * call.d, 4 * call.d, 0.0f);  // token 1
  ASSERT_TRUE(PreCall::Run(call.pre).ok());
  EXPECT_NEAR(call.inv_rms[1], 1000, 1e-2);
  for (auto* values : {&call.h_in, &call.h_post, &call.h_res, &call.h_mix, &call.h_pre}) {
    for (float v : *values) EXPECT_TRUE(std::isfinite(v));
  }
  const std::vector<float> h_in = call.h_in;
  call.pre.options.norm_eps = 0;
  ASSERT_TRUE(PreCall::Run(call.pre).ok());
  EXPECT_TRUE(std::isinf(call.inv_rms[1]));
  for (std::size_t k = 0; k < 4; ++k) EXPECT_TRUE(std::isnan(call.h_post[4 + k]));  // 0 * inf
  for (std::size_t t : {0u, 2u}) {
    EXPECT_TRUE(std::isfinite(call.inv_rms[t]));
    for (std::size_t k = 0; k < 4; ++k) EXPECT_EQ(call.h_post[t * 4 + k], 1.0f);
    for (std::size_t k = 0; k < 8; ++k) EXPECT_NEAR(call.h_in[t * 8 + k], h_in[t * 8 + k], 1e-6);
  }
}

TEST(MhcPreTest, OverflowingSquaresGiveZeroR) {
  PreCall call;
  std::fill(call.x.begin(), call.x.end(), 1e25f);
  ASSERT_TRUE(PreCall::Run(call.pre).ok());
  EXPECT_EQ(call.inv_rms[0], 0.0f);
}

// Batches of 1, of 16 (split along K) and of 37 (tiles), all target kernels' group sizes.
TEST(MhcPreTest, TokensDoNotDependOnTheirBatch) {
  for (const char* name : {"mhc_pre", "mhc_pre_backward", "mhc_pre_sinkhorn", "mhc_head"}) {
    const OperatorEntry& entry = *FindOperator(name);
    Random random(5);
    Case all;
    all.seq = 90;  // in tiles; the parts are split along K or along the rows of phi
    all.d = 1100;  // three blocks of K a stream, the last one ragged
    all.dtype = DType::kBFloat16;
    CaseTensors batch = Allocate(entry, all, Layout::kDense, random);
    FillInputs(entry, all, batch, random);
    ASSERT_TRUE(RunCase(entry, all, batch, Context()).ok());
    int threads = 1;
    for (std::int64_t count : {1, 2, 3, 5, 8, 9, 15, 16, 17, 33, 64, 65}) {
      Case few = all;
      few.seq = count;
      threads = threads % 11 + 2;  // 3, 5, 7, 9, 11, 2, ...
      for (std::int64_t begin : {std::int64_t{0}, 90 - count}) {
        CaseTensors part = Allocate(entry, few, Layout::kDense, random);
        const auto slice = [&](std::size_t k) {
          TensorView view = batch.buffers[k].view;
          if (view.rank() < 2 || view.sizes[1] != 90) return view;  // a parameter
          view.data = static_cast<std::byte*>(view.data) +
                      begin * view.strides[1] * static_cast<std::int64_t>(DTypeSize(view.dtype));
          view.sizes[1] = count;
          return view;
        };
        for (std::size_t k = 0; k < part.specs.size(); ++k) {
          if (!part.specs[k].output) WriteAll(part.buffers[k].view, ReadAll(slice(k)));
        }
        ASSERT_TRUE(RunCase(entry, few, part, Context().set_threads(threads)).ok());
        for (std::size_t k = 0; k < part.specs.size(); ++k) {
          const TensorView& whole = batch.buffers[k].view;
          const bool per_token = whole.rank() >= 2 && whole.sizes[1] == 90;
          if (!part.specs[k].output || !per_token) continue;
          EXPECT_EQ(Bits(part.buffers[k].view), Bits(slice(k)))
              << name << " " << part.specs[k].name << ", " << count << " tokens from " << begin;
        }
      }
    }
  }
}

// Random FP32 elements from `offset` floats past a 64-byte line on.
struct Memory {
  Memory(const Dims& sizes, std::size_t offset, Random* random)
      : storage(static_cast<std::size_t>(NumElements(sizes)) + 32) {
    for (std::size_t k = 0; random != nullptr && k < storage.size(); ++k) {
      storage[k] = static_cast<float>(random->Uniform()) - 0.5f;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
    const std::size_t to_line = (64 - address % 64) % 64 / sizeof(float);
    view = TensorView(storage.data() + to_line + offset, DType::kFloat32, sizes);
  }
  std::vector<float> storage;
  TensorView view;
};

// Large outputs are written past the caches where every row begins at a 64-byte line.
TEST(MhcPreTest, StreamedOutputsHaveTheSameBits) {
  const std::int64_t d = 1024, tokens = StreamingThreshold() / (d * 4) + 3;
  Random random(3);
  const Memory x({tokens, 1, d}, 0, &random), phi({3, d}, 0, &random), vector({3}, 0, &random);
  const Memory grad_h_in({tokens, d}, 0, &random), grad_h_res({tokens, 1, 1}, 0, &random);
  const Memory h_post({tokens, 1}, 0, nullptr), h_res({tokens, 1, 1}, 0, nullptr);
  const Memory inv_rms({tokens}, 0, nullptr), h_mix({tokens, 3}, 0, nullptr);
  const Memory h_pre({tokens, 1}, 0, nullptr), grad_phi({3, d}, 0, nullptr);
  const Memory grad_alpha({3}, 0, nullptr), grad_bias({3}, 0, nullptr);
  std::string h_in_bits, grad_x_bits;
  for (const std::size_t offset : {0, 1}) {
    const bool streams = offset == 0;
    const Memory h_in({tokens, d}, offset, nullptr), grad_x({tokens, 1, d}, offset, nullptr);
    MhcPreArgs a;
    a.x = x.view;
    a.phi = phi.view;
    a.alpha = a.bias = vector.view;
    a.h_in = h_in.view;
    a.h_post = h_post.view;
    a.h_res = h_res.view;
    a.inv_rms = inv_rms.view;
    a.h_mix = h_mix.view;
    a.h_pre = h_pre.view;
    MhcPreBackwardArgs b;
    b.x = x.view;
    b.phi = phi.view;
    b.alpha = vector.view;
    b.grad_h_in = grad_h_in.view;
    b.grad_h_post = h_post.view;
    b.grad_h_res = grad_h_res.view;
    b.inv_rms = inv_rms.view;
    b.h_mix = h_mix.view;
    b.h_pre = h_pre.view;
    b.h_post = h_post.view;
    b.grad_x = grad_x.view;
    b.grad_phi = grad_phi.view;
    b.grad_alpha = grad_alpha.view;
    b.grad_bias = grad_bias.view;
    Plan plan;
    Status status = Prepare(a, &plan);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(plan.info().streaming, streams);
    ASSERT_TRUE(plan.Run().ok());
    status = Prepare(b, &plan);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(plan.info().streaming, streams);
    ASSERT_TRUE(plan.Run().ok());
    if (streams) {
      h_in_bits = Bits(h_in.view);
      grad_x_bits = Bits(grad_x.view);
    } else {
      EXPECT_TRUE(h_in_bits == Bits(h_in.view));
      EXPECT_TRUE(grad_x_bits == Bits(grad_x.view));
    }
  }
}

TEST(MhcPreTest, NanStaysInItsToken) {
  for (const char* name : {"mhc_pre", "mhc_pre_backward", "mhc_pre_sinkhorn",
                           "mhc_pre_sinkhorn_backward", "mhc_head", "mhc_head_backward"}) {
    const OperatorEntry& entry = *FindOperator(name);
    for (std::int64_t seq : {5, 60}) {
      Random random(6);
      Case c;
      c.seq = seq;
      c.d = 40;
      c.dtype = DType::kBFloat16;
      CaseTensors clean = Allocate(entry, c, Layout::kDense, random);
      FillInputs(entry, c, clean, random);
      CaseTensors dirty = Dense(entry, c, clean);
      const TensorView& x = dirty.View("x");
      harness::WriteElement(static_cast<std::byte*>(x.data) + (2 * 160 + 7) * 2, x.dtype, NAN);
      ASSERT_TRUE(RunCase(entry, c, clean, Context()).ok());
      ASSERT_TRUE(RunCase(entry, c, dirty, Context()).ok());
      for (std::size_t k = 0; k < clean.specs.size(); ++k) {
        const TensorSpec& spec = clean.specs[k];
        if (!spec.output) continue;
        const std::vector<double> want = ReadAll(clean.buffers[k].view);
        const std::vector<double> got = ReadAll(dirty.buffers[k].view);
        const bool per_token = spec.sizes.rank >= 2 && spec.sizes[1] == seq;
        const std::size_t stride = want.size() / static_cast<std::size_t>(seq);
        int nans = 0;
        for (std::size_t e = 0; e < want.size(); ++e) {
          if (std::isnan(got[e])) ++nans;
          if (per_token && e / stride != 2) {
            EXPECT_EQ(got[e], want[e]) << name << " " << spec.name;
          }
        }
        EXPECT_GT(nans, 0) << name << " " << spec.name << " has no NaN";
      }
    }
  }
}

TEST(MhcPreTest, NoTokensZeroTheParameterGradients) {
  for (const char* name : {"mhc_pre_backward", "mhc_pre_sinkhorn_backward", "mhc_head_backward"}) {
    const OperatorEntry& entry = *FindOperator(name);
    for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
      Random random(8);
      Case c;
      c.seq = 0;
      c.dtype = dtype;
      CaseTensors tensors = Allocate(entry, c, Layout::kAwkward, random);
      FillInputs(entry, c, tensors, random);
      ASSERT_TRUE(RunCase(entry, c, tensors, Context()).ok());
      for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
        if (!tensors.specs[k].output) continue;
        for (double v : ReadAll(tensors.buffers[k].view)) EXPECT_EQ(v, 0) << tensors.specs[k].name;
      }
    }
  }
}

}  // namespace
}  // namespace anabranch
