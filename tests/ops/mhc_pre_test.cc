// mhc_pre, mhc_pre_sinkhorn and mhc_head beyond what holds for every operator of the table: golden
// values, what other documents have differently, bad input, independence of the batch.
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

namespace anabranch {
namespace {

using harness::Bits;
using harness::CaseTensors;
using harness::Layout;
using harness::Random;
using harness::ReadAll;
using harness::WriteAll;

// mhc_pre_sinkhorn and mhc_pre on FP32 tensors with n = 4; phi is zero, so that bias are the
// logits.
struct Call {
  explicit Call(std::int64_t t = 1, std::int64_t hidden = 8)
      : tokens(t),
        d(hidden),
        x(Size(t * 4 * d), 0.5f),
        phi(Size(24 * 4 * d)),
        alpha(3, 1.0f),
        bias(24),
        h_in(Size(t * d), -7.0f),
        h_post(Size(t * 4), -7.0f),
        h_res(Size(t * 16), -7.0f),
        inv_rms(Size(t), -7.0f),
        h_mix(Size(t * 24), -7.0f),
        h_pre(Size(t * 4), -7.0f) {
    pre.x = TensorView(x.data(), DType::kFloat32, {t, 4, d});
    pre.phi = TensorView(phi.data(), DType::kFloat32, {24, 4 * d});
    pre.alpha = TensorView(alpha.data(), DType::kFloat32, {3});
    pre.bias = TensorView(bias.data(), DType::kFloat32, {24});
    pre.h_in = TensorView(h_in.data(), DType::kFloat32, {t, d});
    pre.h_post = TensorView(h_post.data(), DType::kFloat32, {t, 4});
    pre.h_res = TensorView(h_res.data(), DType::kFloat32, {t, 4, 4});
    pre.inv_rms = TensorView(inv_rms.data(), DType::kFloat32, {t});
    pre.h_mix = TensorView(h_mix.data(), DType::kFloat32, {t, 24});
    pre.h_pre = TensorView(h_pre.data(), DType::kFloat32, {t, 4});
    fused.x = pre.x;
    fused.phi = pre.phi;
    fused.alpha = pre.alpha;
    fused.bias = pre.bias;
    fused.h_in = pre.h_in;
    fused.h_post = pre.h_post;
    fused.h_res = pre.h_res;
    fused.inv_rms = pre.inv_rms;
    fused.h_mix = pre.h_mix;
    fused.h_pre = pre.h_pre;
  }
  static std::size_t Size(std::int64_t value) { return static_cast<std::size_t>(value); }
  template <class Args>
  static Status Run(const Args& args) {
    Plan plan;
    Status status = Prepare(args, &plan);
    return status.ok() ? plan.Run() : status;
  }
  void SetLogits(const std::vector<float>& z) { std::copy(z.begin(), z.end(), bias.begin() + 8); }

  std::int64_t tokens, d;
  std::vector<float> x, phi, alpha, bias, h_in, h_post, h_res, inv_rms, h_mix, h_pre;
  MhcPreArgs pre;
  MhcPreSinkhornArgs fused;
};

TEST(MhcPreTest, ReciprocalRmsOfAConstant) {
  Call call;
  std::fill(call.x.begin(), call.x.end(), 1e-3f);
  ASSERT_TRUE(Call::Run(call.pre).ok());
  EXPECT_NEAR(call.inv_rms[0], 707.107, 1e-3);
}

TEST(MhcPreTest, GatesHaveEpsWhereTheyShould) {
  Call call;
  std::fill(call.bias.begin(), call.bias.begin() + 8, -200.0f);  // sigmoids are zero
  call.pre.options.hc_eps = call.fused.options.hc_eps = 0.25;
  for (int fused = 0; fused < 2; ++fused) {
    ASSERT_TRUE((fused ? Call::Run(call.fused) : Call::Run(call.pre)).ok());
    for (float v : call.h_pre) EXPECT_EQ(v, 0.25f);
    for (float v : call.h_post) EXPECT_EQ(v, 0.0f);
    for (float v : call.h_in) EXPECT_EQ(v, 4 * 0.25f * 0.5f);
  }
  std::fill(call.bias.begin(), call.bias.begin() + 8, 200.0f);
  ASSERT_TRUE(Call::Run(call.pre).ok());
  for (float v : call.h_post) EXPECT_EQ(v, 2.0f);
  call.pre.options.post_multiplier = 3;
  ASSERT_TRUE(Call::Run(call.pre).ok());
  for (float v : call.h_post) EXPECT_EQ(v, 3.0f);
}

TEST(MhcPreTest, ResidualPartLeavesAsLogits) {
  Call call;
  for (std::size_t k = 0; k < 24; ++k) call.bias[k] = static_cast<float>(k) - 10;
  ASSERT_TRUE(Call::Run(call.pre).ok());
  for (std::size_t k = 0; k < 16; ++k) EXPECT_EQ(call.h_res[k], call.bias[8 + k]);
}

// Softmax, + eps, COLUMN step first, then (row, column) pairs.
TEST(MhcPreSinkhornTest, GoldenValues) {
  Call call;
  call.SetLogits({2, 0, 0, 0, 0, 0, 3, 0, 0, 1, 0, 0, 0, 0, 0, -1});
  const auto expect = [&](std::int64_t iters, const std::vector<double>& want) {
    call.fused.options.num_iters = iters;
    ASSERT_TRUE(Call::Run(call.fused).ok());
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
  Call step(21, 70);
  Random random(7);
  for (auto* values : {&step.x, &step.phi, &step.bias}) {
    for (float& v : *values) v = static_cast<float>(random.Normal());
  }
  ASSERT_TRUE(Call::Run(step.pre).ok());
  const std::vector<float> want[] = {step.h_in, step.h_post, step.inv_rms, step.h_mix, step.h_pre};
  ASSERT_TRUE(Call::Run(step.fused).ok());
  EXPECT_EQ(step.h_in, want[0]);
  EXPECT_EQ(step.h_post, want[1]);
  EXPECT_EQ(step.inv_rms, want[2]);
  EXPECT_EQ(step.h_mix, want[3]);
  EXPECT_EQ(step.h_pre, want[4]);
}

TEST(MhcPreTest, ZeroRowsAreFiniteWithNormEpsAndIeeeWithout) {
  Call call(3);
  std::fill_n(call.x.begin() + 4 * call.d, 4 * call.d, 0.0f);  // token 1
  ASSERT_TRUE(Call::Run(call.pre).ok());
  EXPECT_NEAR(call.inv_rms[1], 1000, 1e-2);
  for (auto* values : {&call.h_in, &call.h_post, &call.h_res, &call.h_mix, &call.h_pre}) {
    for (float v : *values) EXPECT_TRUE(std::isfinite(v));
  }
  const std::vector<float> h_in = call.h_in;
  call.pre.options.norm_eps = 0;
  ASSERT_TRUE(Call::Run(call.pre).ok());
  EXPECT_TRUE(std::isinf(call.inv_rms[1]));
  for (std::size_t k = 0; k < 4; ++k) EXPECT_TRUE(std::isnan(call.h_post[4 + k]));  // 0 * inf
  for (std::size_t t : {0u, 2u}) {
    EXPECT_TRUE(std::isfinite(call.inv_rms[t]));
    for (std::size_t k = 0; k < 4; ++k) EXPECT_EQ(call.h_post[t * 4 + k], 1.0f);
    for (std::size_t k = 0; k < 8; ++k) EXPECT_NEAR(call.h_in[t * 8 + k], h_in[t * 8 + k], 1e-6);
  }
}

TEST(MhcPreTest, OverflowingSquaresGiveZeroR) {
  Call call;
  std::fill(call.x.begin(), call.x.end(), 1e25f);
  ASSERT_TRUE(Call::Run(call.pre).ok());
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

// For n = 4 both n! and n*n + 2n are 24, and n! + 2n is 32: the form is never told by F.
TEST(MhcPreTest, TheFormIsAnAttribute) {
  Call call;
  call.pre.residual = Residual::kPermutation;
  call.pre.h_res = TensorView(call.h_res.data(), DType::kFloat32, {1, 24});
  EXPECT_EQ(Call::Run(call.pre).message(),
            "mhc_pre: phi has shape (24, 32), expected (32, 32) to match x and the residual form");
}

TEST(MhcPreTest, ErrorsNameArgumentGotAndWanted) {
  const auto message = [](auto change) {
    Call call(2, 8);
    change(call.pre);
    const Status status = Call::Run(call.pre);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(call.h_in, std::vector<float>(call.h_in.size(), -7.0f)) << "outputs were touched";
    return status.message();
  };
  EXPECT_EQ(message([](MhcPreArgs& a) { a.phi.sizes[0] = 23; }),
            "mhc_pre: phi has shape (23, 32), expected (24, 32) to match x and the residual form");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.alpha.sizes[0] = 2; }),
            "mhc_pre: alpha has shape (2,), expected (3,) to match the residual form");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.h_mix = TensorView(); }),
            "mhc_pre: h_mix is absent, expected all of inv_rms, h_mix and h_pre or none of them");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.options.hc_eps = -1; }),
            "mhc_pre: options.hc_eps is -1, expected a finite number >= 0");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.options.norm_eps = NAN; }),
            "mhc_pre: options.norm_eps is nan, expected a finite number >= 0");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.options.op_impl_mode = 2; }),
            "mhc_pre: options.op_impl_mode is 2, expected 0..1");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.options.op_impl_mode = -1; }),
            "mhc_pre: options.op_impl_mode is -1, expected 0..1");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.options.post_multiplier = INFINITY; }),
            "mhc_pre: options.post_multiplier is inf, expected a finite number");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.residual = Residual::kNone; }),
            "mhc_pre: h_res has shape (2, 4, 4), expected none (there is no residual part)");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.residual = static_cast<Residual>(9); }),
            "mhc_pre: residual is 9, expected 0..2");
  EXPECT_EQ(message([](MhcPreArgs& a) {
              a.residual = Residual::kPermutation;
              a.x.sizes[1] = 6;
            }),
            "mhc_pre: x: n (permutation form) is 6, expected 1..5");
  EXPECT_NE(message([](MhcPreArgs& a) { a.h_in.data = a.x.data; }).find("h_in overlaps x"),
            std::string::npos);
}

TEST(MhcPreSinkhornTest, RefusesBadIterationsAndCaches) {
  const auto message = [](auto change) {
    Call call(2, 8);
    change(call.fused);
    return Call::Run(call.fused).message();
  };
  EXPECT_EQ(message([](MhcPreSinkhornArgs& a) { a.options.num_iters = 0; }),
            "mhc_pre_sinkhorn: options.num_iters is 0, expected 1..1000000");
  EXPECT_EQ(message([](MhcPreSinkhornArgs& a) {
              a.options.clamp_low = 1;
              a.options.clamp_high = -1;
            }),
            "mhc_pre_sinkhorn: options.clamp is (1.000000, -1.000000), expected clamp_low <= "
            "clamp_high");
  EXPECT_EQ(message([](MhcPreSinkhornArgs& a) {
              a.sum_out = TensorView(a.x.data, DType::kFloat32, {40, 2, 4});
            }),
            "mhc_pre_sinkhorn: norm_out is absent, expected both of sum_out and norm_out or none "
            "of them");
  EXPECT_EQ(message([](MhcPreSinkhornArgs& a) { a.h_pre = TensorView(); }),
            "mhc_pre_sinkhorn: h_pre is absent, expected all of h_pre, h_mix and inv_rms or none "
            "of the caches");
}

TEST(MhcPreTest, WorkspacesThatAreTooSmallAreRefused) {
  Call call(40, 8);
  Plan plan;
  ASSERT_TRUE(Prepare(call.pre, &plan).ok());
  ASSERT_GT(plan.workspace_bytes(), 0u);
  alignas(64) std::byte small[64];
  EXPECT_EQ(plan.Run(small, plan.workspace_bytes() - 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(call.h_in[0], -7.0f);
}

// The workspace does not grow with the number of tokens once there are tiles.
TEST(MhcPreTest, WorkspaceIsBounded) {
  for (const char* name : {"mhc_pre", "mhc_pre_backward"}) {
    const OperatorEntry& entry = *FindOperator(name);
    std::size_t bytes[2];
    for (int k = 0; k < 2; ++k) {
      Random random(9);
      Case c;
      c.seq = k == 0 ? 1000 : 4000;
      CaseTensors tensors = Allocate(entry, c, Layout::kDense, random);
      Plan plan;
      ASSERT_TRUE(entry.prepare(c, tensors.Views(), &plan, Context().set_threads(2)).ok());
      bytes[k] = plan.workspace_bytes();
    }
    EXPECT_EQ(bytes[0], bytes[1]) << name;
  }
}

TEST(MhcPreTest, InfersShapesWithUnknownSizes) {
  MhcPreArgs args;
  args.x = TensorView(nullptr, DType::kBFloat16, {kUnknown, 4, kUnknown});
  args.phi = TensorView(nullptr, DType::kFloat32, {24, kUnknown});
  args.alpha = TensorView(nullptr, DType::kFloat32, {3});
  args.bias = TensorView(nullptr, DType::kFloat32, {24});
  args.gamma = TensorView(nullptr, DType::kFloat32, {4, 64});
  args.h_mix = TensorView(nullptr, DType::kFloat32, {9, kUnknown});
  ASSERT_TRUE(InferMhcPre(&args).ok());
  EXPECT_EQ(args.h_in.sizes, (Dims{9, 64}));
  EXPECT_EQ(args.h_in.dtype, DType::kBFloat16);
  EXPECT_EQ(args.h_res.sizes, (Dims{9, 4, 4}));
  EXPECT_EQ(args.inv_rms.sizes, (Dims{9}));
  MhcPreSinkhornArgs fused;
  fused.x = TensorView(nullptr, DType::kFloat16, {2, 3, 4, 16});
  fused.phi = TensorView(nullptr, DType::kFloat32, {24, 64});
  fused.alpha = args.alpha;
  fused.bias = args.bias;
  fused.sum_out = TensorView(nullptr, DType::kFloat32, {40, kUnknown, 4});
  ASSERT_TRUE(InferMhcPreSinkhorn(&fused).ok());
  EXPECT_EQ(fused.norm_out.sizes, (Dims{40, 6, 4, 4}));
  EXPECT_EQ(fused.h_mix.sizes, (Dims{2, 3, 24}));
}

}  // namespace
}  // namespace anabranch
