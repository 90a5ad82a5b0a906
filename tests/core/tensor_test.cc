#include "anabranch/tensor.h"

#include <gtest/gtest.h>

#include "src/core/tokens.h"

namespace anabranch {
namespace {

TEST(TensorTest, ShapesPrintAsInPython) {
  EXPECT_EQ(ToString(Dims{2, 8, 4}), "(2, 8, 4)");
  EXPECT_EQ(ToString(Dims{7}), "(7,)");
  EXPECT_EQ(ToString(Dims{}), "()");
  EXPECT_EQ(ToString(Dims{kUnknown, 3}), "(?, 3)");
}

TEST(TensorTest, NumElementsReportsOverflowAndUnknown) {
  EXPECT_EQ(NumElements(Dims{}), 1);
  EXPECT_EQ(NumElements(Dims{3, 0, 5}), 0);
  EXPECT_EQ(NumElements(Dims{3, kUnknown}), kUnknown);
  EXPECT_EQ(NumElements(Dims{std::int64_t{1} << 32, std::int64_t{1} << 31}), kUnknown);
}

TEST(TensorTest, MoreThanEightDimensionsAreNotCutShort) {
  const Dims dims{1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(dims.rank, kMaxRank + 1);
}

TEST(TokensTest, OffsetsOfAnyLeadingDimensions) {
  // [2, 3, 4, 5] with a transposed and padded token layout.
  const Dims sizes{2, 3, 4, 5};
  const Dims strides{7, 200, 5, 1};
  const TokenIndex index(sizes, strides, 2);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t s = 0; s < 3; ++s) EXPECT_EQ(index.Offset(b * 3 + s), b * 7 + s * 200);
  }
  const TokenIndex dense(sizes, ContiguousStrides(sizes), 2);
  for (std::int64_t t = 0; t < 6; ++t) EXPECT_EQ(dense.Offset(t), t * 20);
  const TokenIndex none(Dims{4, 5}, Dims{5, 1}, 0);
  EXPECT_EQ(none.Offset(0), 0);
}

TEST(TokensTest, FlatMatricesReadLikeSquareOnes) {
  float data[18];
  for (int i = 0; i < 18; ++i) data[i] = static_cast<float>(i);
  const TokenRows flat = TokenRows::Matrix(TensorView(data, DType::kFloat32, {2, 9}), 1, 3);
  const TokenRows square = TokenRows::Matrix(TensorView(data, DType::kFloat32, {2, 3, 3}), 1, 3);
  for (int t = 0; t < 2; ++t) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(flat.At<float>(t, j, i), static_cast<float>(t * 9 + j * 3 + i));
        EXPECT_EQ(square.At<float>(t, j, i), flat.At<float>(t, j, i));
      }
    }
  }
}

}  // namespace
}  // namespace anabranch
