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

namespace anabranch {
namespace {

using harness::Random;

template <class Args>
void MustRun(const Args& args, const Context& context) {
  Plan plan;
  Status status = Prepare(args, &plan, context);
  ASSERT_TRUE(status.ok()) << status.message();
  status = plan.Run();
  ASSERT_TRUE(status.ok()) << status.message();
}

// FP32 values with a shape; outputs start as NaN so that what is not written differs from itself.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Dims& shape, Random* random, double scale) : Buffer(shape) {
    for (float& v : values_) v = static_cast<float>(random->Normal() * scale);
  }
  explicit Buffer(const Dims& shape)
      : shape_(shape), values_(static_cast<std::size_t>(NumElements(shape)), std::nanf("")) {}
  TensorView View() { return TensorView(values_.data(), DType::kFloat32, shape_); }
  const std::vector<float>& values() const { return values_; }

 private:
  Dims shape_;
  std::vector<float> values_;
};

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
    options.hc_eps = options.eps = 1e-5;
    if (shape.clamp) {
      options.clamp_low = -1.5;
      options.clamp_high = 0.75;
    }
    x = Buffer({t, n, d}, &random, 1.0);
    phi = Buffer({f, n * d}, &random, shape.logit_scale / std::sqrt(static_cast<double>(n * d)));
    alpha = Buffer({3}, &random, 1.0);
    bias = Buffer({f}, &random, shape.logit_scale);
    grad_h_in = Buffer({t, d}, &random, 1.0);
    grad_h_post = Buffer({t, n}, &random, 1.0);
    grad_h_res = Buffer({t, n, n}, &random, 1.0);
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
      : h_in({p.t, p.d}),
        h_post({p.t, p.n}),
        h_res({p.t, p.n, p.n}),
        h_pre({p.t, p.n}),
        h_mix({p.t, p.f}),
        inv_rms({p.t}),
        sum_out({2 * p.options.num_iters, p.t, p.n}),
        norm_out({2 * p.options.num_iters, p.t, p.n, p.n}),
        grad_x({p.t, p.n, p.d}),
        grad_phi({p.f, p.n * p.d}),
        grad_alpha({3}),
        grad_bias({p.f}) {}
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
  Buffer logits({p.t, p.n, p.n});
  Buffer grad_logits({p.t, p.n, p.n});
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
  EXPECT_EQ(a.h_in.values(), b.h_in.values());
  EXPECT_EQ(a.h_post.values(), b.h_post.values());
  EXPECT_EQ(a.h_res.values(), b.h_res.values());
  EXPECT_EQ(a.h_pre.values(), b.h_pre.values());
  EXPECT_EQ(a.h_mix.values(), b.h_mix.values());
  EXPECT_EQ(a.inv_rms.values(), b.inv_rms.values());
  if (caches) {
    EXPECT_EQ(a.sum_out.values(), b.sum_out.values());
    EXPECT_EQ(a.norm_out.values(), b.norm_out.values());
  }
  EXPECT_EQ(a.grad_x.values(), b.grad_x.values());
  EXPECT_EQ(a.grad_phi.values(), b.grad_phi.values());
  EXPECT_EQ(a.grad_alpha.values(), b.grad_alpha.values());
  EXPECT_EQ(a.grad_bias.values(), b.grad_bias.values());
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

void ExpectClose(const Buffer& a, const Buffer& b) {
  double largest = 0;
  double error = 0;
  for (std::size_t i = 0; i < a.values().size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a.values()[i])));
    error = std::max(error, std::abs(static_cast<double>(a.values()[i]) - b.values()[i]));
    ASSERT_TRUE(std::isfinite(a.values()[i]) && std::isfinite(b.values()[i])) << "element " << i;
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
  EXPECT_EQ(cached.h_in.values(), recomputed.h_in.values());
  EXPECT_EQ(cached.h_res.values(), recomputed.h_res.values());
  EXPECT_EQ(cached.h_post.values(), recomputed.h_post.values());
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
