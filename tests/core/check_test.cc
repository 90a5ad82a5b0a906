#include "src/core/check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace anabranch {
namespace {

TEST(CheckerTest, FirstFailureSticks) {
  Checker c("op");
  c.Required("x", TensorView());
  c.InRange("n", 99, 1, 16);
  EXPECT_EQ(c.status().code(), StatusCode::kNullArgument);
  EXPECT_EQ(c.status().message(), "op: x is absent, expected a tensor");
}

TEST(CheckerTest, NamesGotAndWanted) {
  Checker c("op");
  float data[48];
  Dims pattern{2, 8, 4};
  c.Matches("h_post", TensorView(data, DType::kFloat32, {2, 8, 3}), &pattern, "x");
  EXPECT_EQ(c.status().message(), "op: h_post has shape (2, 8, 3), expected (2, 8, 4) to match x");
}

TEST(CheckerTest, UnknownSizesAgreeAndAreFilledIn) {
  Checker c("op");
  Dims pattern{kUnknown, 8};
  c.Matches("a", TensorView(nullptr, DType::kFloat32, {5, kUnknown}), &pattern, "x");
  EXPECT_TRUE(c.ok());
  EXPECT_EQ(pattern, (Dims{5, 8}));
}

TEST(CheckerTest, HugeAndNegativeSizes) {
  const std::int64_t big = std::int64_t{1} << 40;
  Checker c("op");
  c.Sane("x", TensorView(nullptr, DType::kFloat32, {big, big}), 2, "[*, n, D]");
  EXPECT_NE(c.status().message().find("2^63"), std::string::npos);
  Checker d("op");
  d.Sane("x", TensorView(nullptr, DType::kFloat32, {-3, 2}), 2, "[*, n, D]");
  EXPECT_NE(d.status().message().find("sizes >= 0"), std::string::npos);
}

TEST(CheckerTest, OverlapIsExactForDenseViews) {
  float data[32];
  const TensorView a(data, DType::kFloat32, {16});
  const TensorView b(data + 16, DType::kFloat32, {16});
  const TensorView both(data + 8, DType::kFloat32, {16});
  Checker fine("op");
  fine.Disjoint("y", a, "x", b);
  EXPECT_TRUE(fine.ok());
  Checker overlap("op");
  overlap.Disjoint("y", both, "x", b);
  EXPECT_FALSE(overlap.ok());
  Checker same("op");
  same.Disjoint("y", a, "x", a, true);
  EXPECT_TRUE(same.ok());
}

TEST(CheckerTest, NegativeStridesAreWithinTheirRange) {
  float data[32];
  const TensorView reversed(data + 15, DType::kFloat32, {16}, {-1});
  const TensorView upper(data + 16, DType::kFloat32, {16});
  Checker c("op");
  c.Addressable("x", reversed);
  c.NotSelfOverlapping("x", reversed);
  c.Disjoint("y", upper, "x", reversed);
  EXPECT_TRUE(c.ok()) << c.status().message();
  c.Disjoint("y", TensorView(data, DType::kFloat32, {1}), "x", reversed);
  EXPECT_FALSE(c.ok());
}

TEST(CheckerTest, NonNegative) {
  for (double bad : {-1e-9, std::nan(""), HUGE_VAL}) {
    Checker c("op");
    c.NonNegative("eps", bad);
    EXPECT_FALSE(c.ok()) << bad;
  }
  Checker c("op");
  c.NonNegative("eps", 0);
  EXPECT_TRUE(c.ok());
}

}  // namespace
}  // namespace anabranch
