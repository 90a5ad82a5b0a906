#include "anabranch/mhc_permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "src/tools/harness/harness.h"

namespace anabranch {
namespace {

std::vector<float> Forward(std::vector<float> z, std::int64_t n, std::int64_t tokens) {
  std::vector<float> out(static_cast<std::size_t>(tokens * n * n), -7.0f);
  MhcPermutationArgs args;
  args.logits =
      TensorView(z.data(), DType::kFloat32, {tokens, static_cast<std::int64_t>(z.size()) / tokens});
  args.h_res = TensorView(out.data(), DType::kFloat32, {tokens, n, n});
  Plan plan;
  Status status = Prepare(args, &plan);
  if (status.ok()) status = plan.Run();
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

// Logit r alone large: the r-th permutation in lexicographic order, row i to column perm[i].
TEST(MhcPermutationTest, OrderIsLexicographic) {
  std::vector<float> z(6, 0.0f);
  z[3] = 200;  // 1 2 0
  EXPECT_EQ(Forward(z, 3, 1), (std::vector<float>{0, 1, 0, 0, 0, 1, 1, 0, 0}));
  std::vector<float> z4(24, 0.0f);
  z4[9] = 200;  // 0123 ... : 1 2 3 0 is the tenth
  EXPECT_EQ(Forward(z4, 4, 1),
            (std::vector<float>{0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0}));
}

TEST(MhcPermutationTest, IsDoublyStochastic) {
  harness::Random random(4);
  for (std::int64_t n = 1; n <= 5; ++n) {
    std::int64_t count = 1;
    for (std::int64_t k = 2; k <= n; ++k) count *= k;
    std::vector<float> z(static_cast<std::size_t>(3 * count));
    for (float& v : z) v = static_cast<float>(10 * random.Normal());
    const std::vector<float> h = Forward(z, n, 3);
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t i = 0; i < n; ++i) {
        double row = 0, column = 0;
        for (std::int64_t j = 0; j < n; ++j) {
          row += h[static_cast<std::size_t>((t * n + i) * n + j)];
          column += h[static_cast<std::size_t>((t * n + j) * n + i)];
        }
        EXPECT_NEAR(row, 1, 2e-6);
        EXPECT_NEAR(column, 1, 2e-6);
      }
    }
  }
}

TEST(MhcPermutationTest, NanStaysInItsToken) {
  std::vector<float> z(3 * 24, 0.0f);
  z[24 + 7] = std::nanf("");
  const std::vector<float> h = Forward(z, 4, 3);
  for (std::size_t e = 0; e < 16; ++e) {
    EXPECT_NEAR(h[e], 0.25f, 1e-6);
    EXPECT_TRUE(std::isnan(h[16 + e]));
    EXPECT_EQ(h[32 + e], h[e]);
  }
}

TEST(MhcPermutationTest, ErrorsNameArgumentGotAndWanted) {
  std::vector<float> z(48), h(32);
  MhcPermutationArgs args;
  args.logits = TensorView(z.data(), DType::kFloat32, {2, 20});
  args.h_res = TensorView(h.data(), DType::kFloat32, {2, 4, 4});
  Plan plan;
  EXPECT_EQ(Prepare(args, &plan).message(),
            "mhc_permutation: logits has shape (2, 20), expected a last dimension of n! with n = "
            "1..5: 1, 2, 6, 24 or 120");
  args.logits = TensorView(z.data(), DType::kFloat32, {8, 6});
  EXPECT_EQ(Prepare(args, &plan).message(),
            "mhc_permutation: h_res has shape (2, 4, 4), expected (8, 3, 3) to match logits");
  args.logits = TensorView(nullptr, DType::kFloat32, {kUnknown, kUnknown});
  args.h_res = TensorView(nullptr, DType::kFloat32, {2, 6, 6});
  EXPECT_EQ(InferMhcPermutation(&args).message(),
            "mhc_permutation: logits: n (permutation form) is 6, expected 1..5");
  args.logits = TensorView(nullptr, DType::kFloat32, {0, 24});
  args.h_res = TensorView(nullptr, DType::kFloat32, {0, 4, 4});
  ASSERT_TRUE(Prepare(args, &plan).ok());
  EXPECT_TRUE(plan.Run().ok());
}

}  // namespace
}  // namespace anabranch
