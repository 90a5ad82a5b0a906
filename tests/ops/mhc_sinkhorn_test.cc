#include "anabranch/mhc_sinkhorn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/tools/harness/harness.h"

namespace anabranch {
namespace {

const std::vector<double> kGoldenLogits = {2, 0, 0, 0, 0, 0, 3, 0, 0, 1, 0, 0, 0, 0, 0, -1};

template <class T>
struct TypeOf;
template <>
struct TypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct TypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};

template <class T>
std::vector<T> Forward(const std::vector<double>& logits, std::int64_t n, MhcOptions options) {
  std::vector<T> z(logits.begin(), logits.end());
  std::vector<T> out(z.size(), T(-7));
  const auto tokens = static_cast<std::int64_t>(z.size()) / (n * n);
  MhcSinkhornArgs args;
  args.logits = TensorView(z.data(), TypeOf<T>::value, {tokens, n, n});
  args.h_res = TensorView(out.data(), TypeOf<T>::value, {tokens, n, n});
  args.options = options;
  Plan plan;
  Status status = Prepare(args, &plan);
  if (status.ok()) status = plan.Run();
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

template <class T>
std::vector<T> Backward(const std::vector<T>& logits, const std::vector<T>& grad, std::int64_t n,
                        MhcOptions options) {
  std::vector<T> z = logits, g = grad, out(z.size(), T(-7));
  const auto tokens = static_cast<std::int64_t>(z.size()) / (n * n);
  MhcSinkhornBackwardArgs args;
  args.logits = TensorView(z.data(), TypeOf<T>::value, {tokens, n, n});
  args.grad_h_res = TensorView(g.data(), TypeOf<T>::value, {tokens, n, n});
  args.grad_logits = TensorView(out.data(), TypeOf<T>::value, {tokens, n, n});
  args.options = options;
  Plan plan;
  Status status = Prepare(args, &plan);
  if (status.ok()) status = plan.Run();
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

MhcOptions Iters(std::int64_t iters) {
  MhcOptions options;
  options.num_iters = iters;
  return options;
}

void ExpectGolden(std::int64_t iters, const std::vector<double>& want) {
  const std::vector<double> exact = Forward<double>(kGoldenLogits, 4, Iters(iters));
  const std::vector<float> single = Forward<float>(kGoldenLogits, 4, Iters(iters));
  for (std::size_t e = 0; e < want.size(); ++e) {
    EXPECT_NEAR(exact[e], want[e], 6e-10) << iters << " iterations, element " << e;
    EXPECT_NEAR(single[e], want[e], 3e-7) << iters << " iterations, element " << e;
  }
}

TEST(MhcSinkhornTest, GoldenValues) {
  ExpectGolden(1, {0.579957936, 0.105559410, 0.066932430, 0.227187018});
  ExpectGolden(2, {0.597791859, 0.117320559, 0.060164068, 0.242686516});
  ExpectGolden(20, {0.592519750, 0.116562194, 0.053291302, 0.237625758, 0.053291301, 0.077463348,
                    0.711326190, 0.157918157, 0.116562193, 0.460564612, 0.077463349, 0.345408847,
                    0.237625757, 0.345408846, 0.157918159, 0.259046239});
}

TEST(MhcSinkhornTest, GoldenValuesOfSymmetricLogits) {
  for (float v : Forward<float>(std::vector<double>(16, 0.0), 4, Iters(20))) {
    EXPECT_NEAR(v, 0.24999975, 6e-8);
  }
  std::vector<double> diagonal(16, 0.0);
  for (std::size_t i = 0; i < 4; ++i) diagonal[5 * i] = 10;
  const std::vector<float> out = Forward<float>(diagonal, 4, Iters(20));
  for (std::size_t e = 0; e < 16; ++e) {
    EXPECT_NEAR(out[e], e % 5 == 0 ? 0.999859819 : 4.639e-5, e % 5 == 0 ? 2e-7 : 5e-9);
  }
}

// The last Jacobian is that of the softmax without eps; with eps it is off by far more than this.
TEST(MhcSinkhornTest, LastJacobianHasNoEps) {
  MhcOptions options = Iters(3);
  options.sinkhorn_eps = 0.05;
  harness::Random random(3);
  std::vector<double> z(9), g(9);
  for (double& v : z) v = 2 * random.Normal();
  for (double& v : g) v = random.Normal();
  const std::vector<double> got = Backward<double>(z, g, 3, options);
  for (std::size_t e = 0; e < 9; ++e) {
    const auto loss = [&](double step) {
      std::vector<double> moved = z;
      moved[e] += step;
      const std::vector<double> out = Forward<double>(moved, 3, options);
      double sum = 0;
      for (std::size_t k = 0; k < 9; ++k) sum += g[k] * out[k];
      return sum;
    };
    EXPECT_NEAR(got[e], (loss(1e-6) - loss(-1e-6)) / 2e-6, 1e-8);
  }
}

TEST(MhcSinkhornTest, NoGradientOutsideTheClamp) {
  MhcOptions options = Iters(4);
  options.clamp_low = -1;
  options.clamp_high = 2;
  const std::vector<float> z = {-1.5f, -1.0f, 0.5f, 2.5f};  // -1 is on the edge: inside
  const std::vector<float> got = Backward<float>(z, {1, 2, -3, 5}, 2, options);
  EXPECT_EQ(got[0], 0.0f);
  EXPECT_NE(got[1], 0.0f);
  EXPECT_NE(got[2], 0.0f);
  EXPECT_EQ(got[3], 0.0f);
  const std::vector<float> clamped = Forward<float>({-1, -1, 0.5, 2}, 2, Iters(4));
  EXPECT_EQ(Forward<float>({-1.5, -1, 0.5, 2.5}, 2, options), clamped);
}

TEST(MhcSinkhornTest, NanStaysInItsToken) {
  std::vector<double> z(3 * 16, 0.25);
  const std::vector<float> clean = Forward<float>(z, 4, Iters(20));
  for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    z[16 + 5] = bad;
    const std::vector<float> out = Forward<float>(z, 4, Iters(20));
    for (std::size_t e = 0; e < 16; ++e) {
      EXPECT_EQ(out[e], clean[e]);
      EXPECT_TRUE(std::isnan(out[16 + e]));
      EXPECT_EQ(out[32 + e], clean[32 + e]);
    }
  }
}

TEST(MhcSinkhornTest, ATokenDoesNotDependOnItsBatch) {
  harness::Random random(9);
  for (std::int64_t n : {1, 3, 4, 16}) {
    const auto size = static_cast<std::size_t>(n * n);
    std::vector<double> z(37 * size);
    for (double& v : z) v = static_cast<float>(3 * random.Normal());
    const std::vector<float> all = Forward<float>(z, n, Iters(7));
    for (std::size_t t : {0, 17, 36}) {
      const auto begin = static_cast<std::ptrdiff_t>(t * size);
      const auto end = static_cast<std::ptrdiff_t>((t + 1) * size);
      EXPECT_EQ(Forward<float>({z.begin() + begin, z.begin() + end}, n, Iters(7)),
                std::vector<float>(all.begin() + begin, all.begin() + end));
    }
  }
}

struct Call {
  std::vector<float> z = std::vector<float>(2 * 16, 0.5f), out = std::vector<float>(2 * 16, -7.0f);
  std::vector<float> sums = std::vector<float>(40 * 2 * 4), norms = std::vector<float>(40 * 2 * 16);
  MhcSinkhornArgs args;
  Call() {
    args.logits = TensorView(z.data(), DType::kFloat32, {2, 4, 4});
    args.h_res = TensorView(out.data(), DType::kFloat32, {2, 4, 4});
    args.sum_out = TensorView(sums.data(), DType::kFloat32, {40, 2, 4});
    args.norm_out = TensorView(norms.data(), DType::kFloat32, {40, 2, 4, 4});
  }
};

TEST(MhcSinkhornTest, ErrorsNameArgumentGotAndWanted) {
  const auto message = [](auto change) {
    Call call;
    change(call.args);
    Plan plan;
    const Status status = Prepare(call.args, &plan);
    EXPECT_FALSE(status.ok());
    return status.message();
  };
  EXPECT_EQ(message([](MhcSinkhornArgs& a) { a.options.num_iters = 0; }),
            "mhc_sinkhorn: options.num_iters is 0, expected 1..1000000");
  EXPECT_EQ(message([](MhcSinkhornArgs& a) { a.options.sinkhorn_eps = -1; }),
            "mhc_sinkhorn: options.sinkhorn_eps is -1, expected a finite number >= 0");
  EXPECT_EQ(message([](MhcSinkhornArgs& a) { a.options.sinkhorn_eps = std::nan(""); }),
            "mhc_sinkhorn: options.sinkhorn_eps is nan, expected a finite number >= 0");
  EXPECT_EQ(message([](MhcSinkhornArgs& a) { a.options.clamp_low = 2; }),
            "mhc_sinkhorn: options.clamp is (2.000000, 0.000000), expected low <= high");
  EXPECT_EQ(
      message([](MhcSinkhornArgs& a) { a.norm_out = TensorView(); }),
      "mhc_sinkhorn: norm_out is absent, expected all of sum_out and norm_out or none of them");
  EXPECT_EQ(message([](MhcSinkhornArgs& a) { a.sum_out.sizes[0] = 38; }),
            "mhc_sinkhorn: sum_out has shape (38, 2, 4), expected (40, 2, 4) to match logits "
            "and options.num_iters");
  EXPECT_EQ(message([](MhcSinkhornArgs& a) { a.logits.sizes[1] = 3; }),
            "mhc_sinkhorn: logits has shape (2, 3, 4), expected square matrices");
  EXPECT_EQ(message([](MhcSinkhornArgs& a) { a.n = 17; }), "mhc_sinkhorn: n is 17, expected 1..16");
  EXPECT_EQ(message([](MhcSinkhornArgs& a) { a.h_res.sizes[0] = 3; }),
            "mhc_sinkhorn: h_res has shape (3, 4, 4), expected (2, 4, 4) to match logits");
  EXPECT_EQ(message([](MhcSinkhornArgs& a) { a.logits.dtype = DType::kBFloat16; }),
            "mhc_sinkhorn: logits has dtype bfloat16, expected float32 (coefficients are float32)");
}

TEST(MhcSinkhornTest, BackwardNeedsLogitsOrCaches) {
  Call call;
  MhcSinkhornBackwardArgs args;
  args.grad_h_res = call.args.logits;
  args.grad_logits = call.args.h_res;
  Plan plan;
  EXPECT_EQ(Prepare(args, &plan).message(),
            "mhc_sinkhorn_backward: logits is absent, expected a tensor");
  args.sum_out = call.args.sum_out;
  args.norm_out = call.args.norm_out;
  EXPECT_TRUE(Prepare(args, &plan).ok());
  args.options.clamp_high = 1;  // which gradients vanish, only the logits tell
  EXPECT_EQ(Prepare(args, &plan).message(),
            "mhc_sinkhorn_backward: logits is absent, expected a tensor");
}

TEST(MhcSinkhornTest, CachesWithoutEpsAndInPlaceAndNoTokens) {
  Call call;
  call.args.softmax_cache_without_eps = true;
  call.args.options.sinkhorn_eps = 0.125;
  call.args.h_res = call.args.logits;
  Plan plan;
  ASSERT_TRUE(Prepare(call.args, &plan).ok());
  ASSERT_TRUE(plan.Run().ok());
  EXPECT_EQ(call.norms[0], 0.25f);
  call.args.softmax_cache_without_eps = false;
  ASSERT_TRUE(Prepare(call.args, &plan).ok());
  ASSERT_TRUE(plan.Run().ok());
  EXPECT_NEAR(call.norms[0], 0.375f, 1e-6);
  MhcSinkhornArgs none;
  none.logits = TensorView(nullptr, DType::kFloat32, {0, 4, 4});
  none.h_res = none.logits;
  ASSERT_TRUE(Prepare(none, &plan).ok());
  EXPECT_TRUE(plan.Run().ok());
}

TEST(MhcSinkhornTest, InfersShapes) {
  MhcSinkhornArgs args;
  args.logits = TensorView(nullptr, DType::kFloat32, {kUnknown, 3, 16});
  args.n = 4;
  ASSERT_TRUE(InferMhcSinkhorn(&args).ok());
  EXPECT_EQ(args.h_res.sizes, (Dims{kUnknown, 3, 16}));
  MhcSinkhornBackwardArgs backward;
  backward.grad_h_res = TensorView(nullptr, DType::kFloat32, {16, 16});  // one matrix
  backward.logits = backward.grad_h_res;
  ASSERT_TRUE(InferMhcSinkhornBackward(&backward).ok());
  EXPECT_EQ(backward.grad_logits.sizes, (Dims{16, 16}));
}

}  // namespace
}  // namespace anabranch
