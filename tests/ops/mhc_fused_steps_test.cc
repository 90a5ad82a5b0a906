// mhc_pre_sinkhorn is mhc_pre and mhc_sinkhorn in one pass: the same bits, forward and backward,
// with caches and recomputing, on every target.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "anabranch/cpu.h"
#include "anabranch/mhc.h"
#include "src/tools/harness/harness.h"
#include "tests/ops/buffer.h"

namespace anabranch {
namespace {

using harness::Random;

struct Shape {
  std::int64_t tokens, n, d, iters;
  double logit_scale;
  bool clamp;
};

// All tensors of both ways for one shape.
struct Problem {
  Problem(const Shape& shape, std::uint64_t seed)
      : t(shape.tokens), n(shape.n), d(shape.d), f(n * n + 2 * n), random(seed) {
    options.num_iters = shape.iters;
    options.pre_eps = 1e-5;
    options.sinkhorn_eps = 3e-4;  // C and Python have one number for both
    if (shape.clamp) {
      options.clamp_low = -1.5;
      options.clamp_high = 0.75;
    }
    x = Buffer(DType::kFloat32, {t, n, d}, &random, 1.0);
    phi = Buffer(DType::kFloat32, {f, n * d}, &random,
                 shape.logit_scale / std::sqrt(static_cast<double>(n * d)));
    alpha = Buffer(DType::kFloat32, {3}, &random, 1.0);
    bias = Buffer(DType::kFloat32, {f}, &random, shape.logit_scale);
    grad_h_in = Buffer(DType::kFloat32, {t, d}, &random, 1.0);
    grad_h_post = Buffer(DType::kFloat32, {t, n}, &random, 1.0);
    grad_h_res = Buffer(DType::kFloat32, {t, n, n}, &random, 1.0);
  }

  std::int64_t t, n, d, f;
  Random random;
  MhcOptions options;
  Buffer x, phi, alpha, bias, grad_h_in, grad_h_post, grad_h_res;
};

// What either way leaves.
struct Result {
  Buffer h_in, h_post, h_res, h_pre, h_mix, inv_rms, sum_out, norm_out;
  Buffer grad_x, grad_phi, grad_alpha, grad_bias;

  explicit Result(const Problem& p)
      : h_in(DType::kFloat32, {p.t, p.d}),
        h_post(DType::kFloat32, {p.t, p.n}),
        h_res(DType::kFloat32, {p.t, p.n, p.n}),
        h_pre(DType::kFloat32, {p.t, p.n}),
        h_mix(DType::kFloat32, {p.t, p.f}),
        inv_rms(DType::kFloat32, {p.t}),
        sum_out(DType::kFloat32, {2 * p.options.num_iters, p.t, p.n}),
        norm_out(DType::kFloat32, {2 * p.options.num_iters, p.t, p.n, p.n}),
        grad_x(DType::kFloat32, {p.t, p.n, p.d}),
        grad_phi(DType::kFloat32, {p.f, p.n * p.d}),
        grad_alpha(DType::kFloat32, {3}),
        grad_bias(DType::kFloat32, {p.f}) {}
};

Result Fused(Problem& p, bool caches, const Context& context) {
  Result r(p);
  MhcPreSinkhornArgs forward;
  forward.x = p.x.View();
  forward.phi = p.phi.View();
  forward.alpha = p.alpha.View();
  forward.bias = p.bias.View();
  forward.h_in = r.h_in.View();
  forward.h_post = r.h_post.View();
  forward.h_res = r.h_res.View();
  forward.h_pre = r.h_pre.View();
  forward.h_mix = r.h_mix.View();
  forward.inv_rms = r.inv_rms.View();
  if (caches) {
    forward.sum_out = r.sum_out.View();
    forward.norm_out = r.norm_out.View();
  }
  forward.options = p.options;
  MustRun(forward, context);

  MhcPreSinkhornBackwardArgs backward;
  backward.grad_h_in = p.grad_h_in.View();
  backward.grad_h_post = p.grad_h_post.View();
  backward.grad_h_res = p.grad_h_res.View();
  backward.x = p.x.View();
  backward.phi = p.phi.View();
  backward.alpha = p.alpha.View();
  backward.bias = p.bias.View();
  backward.h_pre = r.h_pre.View();
  backward.h_mix = r.h_mix.View();
  backward.inv_rms = r.inv_rms.View();
  backward.sum_out = forward.sum_out;
  backward.norm_out = forward.norm_out;
  backward.grad_x = r.grad_x.View();
  backward.grad_phi = r.grad_phi.View();
  backward.grad_alpha = r.grad_alpha.View();
  backward.grad_bias = r.grad_bias.View();
  backward.options = p.options;
  MustRun(backward, context);
  return r;
}

Result InSteps(Problem& p, bool caches, const Context& context) {
  Result r(p);
  Buffer logits(DType::kFloat32, {p.t, p.n, p.n});
  Buffer grad_logits(DType::kFloat32, {p.t, p.n, p.n});
  MhcPreArgs pre;
  pre.x = p.x.View();
  pre.phi = p.phi.View();
  pre.alpha = p.alpha.View();
  pre.bias = p.bias.View();
  pre.h_in = r.h_in.View();
  pre.h_post = r.h_post.View();
  pre.h_res = logits.View();
  pre.h_pre = r.h_pre.View();
  pre.h_mix = r.h_mix.View();
  pre.inv_rms = r.inv_rms.View();
  pre.options = p.options;
  MustRun(pre, context);
  MhcSinkhornArgs sinkhorn;
  sinkhorn.logits = logits.View();
  sinkhorn.h_res = r.h_res.View();
  if (caches) {
    sinkhorn.sum_out = r.sum_out.View();
    sinkhorn.norm_out = r.norm_out.View();
  }
  sinkhorn.options = p.options;
  MustRun(sinkhorn, context);

  MhcSinkhornBackwardArgs sinkhorn_backward;
  sinkhorn_backward.grad_h_res = p.grad_h_res.View();
  sinkhorn_backward.logits = logits.View();
  sinkhorn_backward.sum_out = sinkhorn.sum_out;
  sinkhorn_backward.norm_out = sinkhorn.norm_out;
  sinkhorn_backward.grad_logits = grad_logits.View();
  sinkhorn_backward.options = p.options;
  MustRun(sinkhorn_backward, context);
  MhcPreBackwardArgs backward;
  backward.x = p.x.View();
  backward.phi = p.phi.View();
  backward.alpha = p.alpha.View();
  backward.grad_h_in = p.grad_h_in.View();
  backward.grad_h_post = p.grad_h_post.View();
  backward.grad_h_res = grad_logits.View();
  backward.inv_rms = r.inv_rms.View();
  backward.h_mix = r.h_mix.View();
  backward.h_pre = r.h_pre.View();
  backward.h_post = r.h_post.View();
  backward.grad_x = r.grad_x.View();
  backward.grad_phi = r.grad_phi.View();
  backward.grad_alpha = r.grad_alpha.View();
  backward.grad_bias = r.grad_bias.View();
  backward.options = p.options;
  MustRun(backward, context);
  return r;
}

void ExpectSameBits(const Result& a, const Result& b, bool caches) {
  EXPECT_EQ(a.h_in.floats(), b.h_in.floats());
  EXPECT_EQ(a.h_post.floats(), b.h_post.floats());
  EXPECT_EQ(a.h_res.floats(), b.h_res.floats());
  EXPECT_EQ(a.h_pre.floats(), b.h_pre.floats());
  EXPECT_EQ(a.h_mix.floats(), b.h_mix.floats());
  EXPECT_EQ(a.inv_rms.floats(), b.inv_rms.floats());
  if (caches) {
    EXPECT_EQ(a.sum_out.floats(), b.sum_out.floats());
    EXPECT_EQ(a.norm_out.floats(), b.norm_out.floats());
  }
  EXPECT_EQ(a.grad_x.floats(), b.grad_x.floats());
  EXPECT_EQ(a.grad_phi.floats(), b.grad_phi.floats());
  EXPECT_EQ(a.grad_alpha.floats(), b.grad_alpha.floats());
  EXPECT_EQ(a.grad_bias.floats(), b.grad_bias.floats());
}

class FusedAndSteps : public testing::TestWithParam<Shape> {};

TEST_P(FusedAndSteps, GiveTheSameBits) {
  for (Target target : SupportedTargets()) {
    SCOPED_TRACE(TargetName(target));
    const Context context = Context().set_target(target).set_threads(2);
    Problem problem(GetParam(), 11);
    const Result fused = Fused(problem, false, context);
    ExpectSameBits(fused, InSteps(problem, false, context), false);
  }
}

TEST_P(FusedAndSteps, GiveTheSameBitsWithCaches) {
  for (Target target : SupportedTargets()) {
    SCOPED_TRACE(TargetName(target));
    const Context context = Context().set_target(target).set_threads(1);
    Problem problem(GetParam(), 12);
    const Result fused = Fused(problem, true, context);
    ExpectSameBits(fused, InSteps(problem, true, context), true);
  }
}

void ExpectClose(const Buffer& left, const Buffer& right) {
  const std::vector<float> a = left.floats();
  const std::vector<float> b = right.floats();
  double largest = 0;
  double error = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
    error = std::max(error, std::abs(static_cast<double>(a[i]) - b[i]));
    ASSERT_TRUE(std::isfinite(a[i]) && std::isfinite(b[i])) << "element " << i;
  }
  EXPECT_LE(error, 2e-6 * largest);
}

// The caches hold what the backward would compute again, but for one rounding: norm_out[0] is the
// softmax + eps, from which the softmax comes back rounded. The forward does not feel them.
TEST_P(FusedAndSteps, CachesSpareTheIterationAndChangeNothingElse) {
  Problem problem(GetParam(), 13);
  const Context& context = Context::Default();
  const Result cached = Fused(problem, true, context);
  const Result recomputed = Fused(problem, false, context);
  EXPECT_EQ(cached.h_in.floats(), recomputed.h_in.floats());
  EXPECT_EQ(cached.h_res.floats(), recomputed.h_res.floats());
  EXPECT_EQ(cached.h_post.floats(), recomputed.h_post.floats());
  ExpectClose(cached.grad_x, recomputed.grad_x);
  ExpectClose(cached.grad_phi, recomputed.grad_phi);
  ExpectClose(cached.grad_alpha, recomputed.grad_alpha);
  ExpectClose(cached.grad_bias, recomputed.grad_bias);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, FusedAndSteps,
    testing::Values(Shape{1, 4, 33, 20, 1, false}, Shape{37, 4, 70, 20, 3, false},
                    Shape{130, 4, 16, 1, 10, false}, Shape{21, 4, 513, 2, 3, true},
                    Shape{19, 1, 40, 3, 3, false}, Shape{19, 2, 40, 5, 10, true},
                    Shape{67, 3, 31, 20, 3, false}, Shape{35, 5, 17, 7, 1, false},
                    Shape{18, 8, 24, 20, 3, true}, Shape{5, 16, 9, 3, 1, false}),
    [](const testing::TestParamInfo<Shape>& test) {
      const Shape& s = test.param;
      std::string name("t");
      name.append(std::to_string(s.tokens)).append("n").append(std::to_string(s.n));
      name.append("d").append(std::to_string(s.d)).append("i").append(std::to_string(s.iters));
      return name.append(s.clamp ? "clamped" : "");
    });

}  // namespace
}  // namespace anabranch
