// mhc_post_pre beyond what holds for every operator of the table: the bits of the two calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "anabranch/cpu.h"
#include "anabranch/mhc.h"
#include "src/core/parallel.h"
#include "src/tools/harness/harness.h"
#include "tests/ops/buffer.h"

namespace anabranch {
namespace {

using harness::Random;

struct Outputs {
  Outputs(DType dtype, std::int64_t t, std::int64_t n, std::int64_t d, std::int64_t iters)
      : y(dtype, {t, n, d}),
        h_in(dtype, {t, d}),
        h_post(DType::kFloat32, {t, n}),
        h_res(DType::kFloat32, {t, n, n}),
        h_pre(DType::kFloat32, {t, n}),
        h_mix(DType::kFloat32, {t, n * n + 2 * n}),
        inv_rms(DType::kFloat32, {t}),
        sum_out(DType::kFloat32, {2 * iters, t, n}),
        norm_out(DType::kFloat32, {2 * iters, t, n, n}) {}
  Buffer y, h_in, h_post, h_res, h_pre, h_mix, inv_rms, sum_out, norm_out;
};

struct Problem {
  Problem(DType type, std::int64_t tokens, std::int64_t streams, std::int64_t hidden)
      : dtype(type),
        t(tokens),
        n(streams),
        d(hidden),
        f(n * n + 2 * n),
        random(5),
        x(dtype, {t, n, d}, &random, 1),
        h_out(dtype, {t, d}, &random, 1),
        h_post(DType::kFloat32, {t, n}, &random, 1),
        h_res(DType::kFloat32, {t, n, n}, &random, 0.5),
        phi(DType::kFloat32, {f, n * d}, &random, 1 / std::sqrt(static_cast<double>(n * d))),
        alpha(DType::kFloat32, {3}, &random, 1),
        bias(DType::kFloat32, {f}, &random, 1) {
    args.x = x.View();
    args.h_res = h_res.View();
    args.h_out = h_out.View();
    args.h_post = h_post.View();
    args.phi = phi.View();
    args.alpha = alpha.View();
    args.bias = bias.View();
    args.options.num_iters = 3;
  }

  void Write(Outputs* o) {
    args.y = o->y.View();
    args.h_in = o->h_in.View();
    args.next_h_post = o->h_post.View();
    args.next_h_res = o->h_res.View();
    args.h_pre = o->h_pre.View();
    args.h_mix = o->h_mix.View();
    args.inv_rms = o->inv_rms.View();
    args.sum_out = o->sum_out.View();
    args.norm_out = o->norm_out.View();
  }

  void InTwoCalls(Outputs* o, const Context& context) const {
    MhcPostArgs post;
    post.x = args.x;
    post.h_res = args.h_res;
    post.h_out = args.h_out;
    post.h_post = args.h_post;
    post.y = o->y.View();
    MustRun(post, context);
    MhcPreSinkhornArgs pre;
    pre.x = o->y.View();
    pre.phi = args.phi;
    pre.alpha = args.alpha;
    pre.bias = args.bias;
    pre.h_in = o->h_in.View();
    pre.h_post = o->h_post.View();
    pre.h_res = o->h_res.View();
    pre.h_pre = o->h_pre.View();
    pre.h_mix = o->h_mix.View();
    pre.inv_rms = o->inv_rms.View();
    pre.sum_out = o->sum_out.View();
    pre.norm_out = o->norm_out.View();
    pre.options = args.options;
    MustRun(pre, context);
  }

  DType dtype;
  std::int64_t t, n, d, f;
  Random random;
  Buffer x, h_out, h_post, h_res, phi, alpha, bias;
  MhcPostPreArgs args;
};

void ExpectSameBits(const Outputs& a, const Outputs& b) {
  EXPECT_TRUE(a.y.bytes == b.y.bytes);
  EXPECT_TRUE(a.h_in.bytes == b.h_in.bytes);
  EXPECT_TRUE(a.h_post.bytes == b.h_post.bytes);
  EXPECT_TRUE(a.h_res.bytes == b.h_res.bytes);
  EXPECT_TRUE(a.h_pre.bytes == b.h_pre.bytes);
  EXPECT_TRUE(a.h_mix.bytes == b.h_mix.bytes);
  EXPECT_TRUE(a.inv_rms.bytes == b.inv_rms.bytes);
  EXPECT_TRUE(a.sum_out.bytes == b.sum_out.bytes);
  EXPECT_TRUE(a.norm_out.bytes == b.norm_out.bytes);
}

TEST(MhcPostPreTest, HasTheBitsOfTheTwoCalls) {
  struct Shape {
    std::int64_t t, n, d;
  };
  for (const Shape& s : {Shape{1, 4, 65}, Shape{16, 4, 40}, Shape{17, 4, 40}, Shape{101, 4, 513},
                         Shape{70, 1, 33}, Shape{40, 3, 31}, Shape{35, 8, 24}, Shape{3, 16, 9}}) {
    for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (Target target : SupportedTargets()) {
        SCOPED_TRACE(std::string(TargetName(target)) + " t=" + std::to_string(s.t));
        const Context context = Context().set_target(target).set_threads(2);
        Problem p(dtype, s.t, s.n, s.d);
        Outputs fused(dtype, s.t, s.n, s.d, 3);
        Outputs steps(dtype, s.t, s.n, s.d, 3);
        p.Write(&fused);
        MustRun(p.args, context);
        p.InTwoCalls(&steps, context);
        ExpectSameBits(fused, steps);
        p.args.h_res = TensorView();
        p.InTwoCalls(&steps, context);
        MustRun(p.args, context);
        ExpectSameBits(fused, steps);
      }
    }
  }
}

// Written from registers where rows begin with a line (BF16 on AVX-512), chunk by chunk elsewhere.
TEST(MhcPostPreTest, LargeStreamsAreWrittenPastTheCaches) {
  if (StreamingThreshold() > std::int64_t{64} << 20) {
    GTEST_SKIP() << "what is large for so many cores needs gigabytes: run it on fewer (taskset)";
  }
  for (const std::int64_t d : {1024, 1003}) {
    const std::int64_t tokens = StreamingThreshold() / (4 * d * 2) + 21;
    Problem p(DType::kBFloat16, tokens, 4, d);
    Outputs fused(p.dtype, p.t, p.n, p.d, 3);
    Outputs steps(p.dtype, p.t, p.n, p.d, 3);
    const std::size_t bytes = fused.y.bytes.size();
    std::vector<std::byte> memory(bytes + 64);
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    std::byte* lines = memory.data() + (64 - address % 64) % 64;
    for (Target target : SupportedTargets()) {
      SCOPED_TRACE(std::string(TargetName(target)) + " d=" + std::to_string(d));
      const Context context = Context().set_target(target).set_threads(2);
      p.Write(&fused);
      p.args.y = TensorView(lines, p.dtype, {p.t, p.n, p.d});
      bool streaming = false;
      MustRun(p.args, context, &streaming);
      EXPECT_TRUE(streaming);
      std::copy_n(lines, bytes, fused.y.bytes.begin());
      p.InTwoCalls(&steps, context);
      ExpectSameBits(fused, steps);
    }
  }
}

TEST(MhcPostPreTest, StreamsMayBeUpdatedInPlace) {
  for (std::int64_t tokens : {5, 90}) {
    Problem p(DType::kBFloat16, tokens, 4, 70);
    Outputs apart(p.dtype, p.t, p.n, p.d, 3);
    p.Write(&apart);
    MustRun(p.args, Context::Default());
    Outputs in_place(p.dtype, p.t, p.n, p.d, 3);
    p.Write(&in_place);
    p.args.y = p.args.x;
    MustRun(p.args, Context::Default());
    EXPECT_TRUE(p.x.bytes == apart.y.bytes);
    EXPECT_TRUE(in_place.h_in.bytes == apart.h_in.bytes);
    EXPECT_TRUE(in_place.h_res.bytes == apart.h_res.bytes);
  }
}

TEST(MhcPostPreTest, ErrorsNameArgumentGotAndWanted) {
  Problem p(DType::kFloat32, 3, 4, 8);
  Outputs o(p.dtype, p.t, p.n, p.d, 3);
  p.Write(&o);
  const auto refused = [](MhcPostPreArgs args, const std::string& message) {
    Plan plan;
    const Status status = Prepare(args, &plan);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "mhc_post_pre: " + message);
  };
  MhcPostPreArgs bad = p.args;
  bad.h_out = TensorView(p.h_out.bytes.data(), DType::kFloat32, {3, 7}, {8, 1});
  refused(bad, "h_out has shape (3, 7), expected (3, 8) to match x");
  bad = p.args;
  bad.phi = TensorView(p.phi.bytes.data(), DType::kFloat32, {23, 32});
  refused(bad, "phi has shape (23, 32), expected (24, 32) to match x and the residual form");
  bad = p.args;
  bad.h_mix = TensorView();
  refused(bad, "h_mix is absent, expected all of h_pre, h_mix and inv_rms or none of the caches");
  bad = p.args;
  bad.norm_out = TensorView();
  refused(bad, "norm_out is absent, expected both of sum_out and norm_out or none of them");
  bad = p.args;
  bad.options.num_iters = 0;
  refused(bad, "options.num_iters is 0, expected 1..1000000");
}

TEST(MhcPostPreTest, InfersShapes) {
  Problem p(DType::kBFloat16, 3, 4, 8);
  ASSERT_TRUE(InferMhcPostPre(&p.args).ok());
  EXPECT_EQ(ToString(p.args.y.sizes), "(3, 4, 8)");
  EXPECT_EQ(ToString(p.args.h_in.sizes), "(3, 8)");
  EXPECT_EQ(p.args.h_in.dtype, DType::kBFloat16);
  EXPECT_EQ(ToString(p.args.next_h_res.sizes), "(3, 4, 4)");
  EXPECT_FALSE(p.args.h_pre.defined());
}

}  // namespace
}  // namespace anabranch
