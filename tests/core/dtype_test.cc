#include "anabranch/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace anabranch {
namespace {

// Value of a small float format from its definition, in double.
double Decode(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const std::uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1u << exponent_bits) - 1));
  const bool negative = (bits >> (mantissa_bits + exponent_bits)) != 0;
  const int top = (1 << exponent_bits) - 1;
  const int bias = top / 2;
  double value;
  if (exponent == top) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1u << mantissa_bits), exponent - bias - mantissa_bits);
  }
  return negative ? -value : value;
}

TEST(DTypeTest, AllPatternsWidenExactlyAndComeBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const float b = ToFloat(BFloat16{pattern});
    const float h = ToFloat(Float16{pattern});
    const double want_b = Decode(bits, 8, 7);
    const double want_h = Decode(bits, 5, 10);
    if (std::isnan(want_b)) {
      EXPECT_TRUE(std::isnan(b)) << bits;
      EXPECT_EQ(ToBFloat16(b).bits, pattern | 0x40) << bits;
    } else {
      EXPECT_EQ(b, want_b) << bits;
      EXPECT_EQ(ToBFloat16(b).bits, pattern) << bits;
    }
    if (std::isnan(want_h)) {
      EXPECT_TRUE(std::isnan(h)) << bits;
      EXPECT_EQ(ToFloat16(h).bits, pattern | 0x200) << bits;
    } else {
      EXPECT_EQ(h, want_h) << bits;
      EXPECT_EQ(std::signbit(h), std::signbit(want_h)) << bits;
      EXPECT_EQ(ToFloat16(h).bits, pattern) << bits;
    }
  }
}

// Between neighbours a and b of a format: below the midpoint goes to a, above to b, the midpoint to
// the one with an even mantissa. All 65,536 patterns.
template <class Half, class Narrow>
void CheckRounding(std::uint32_t infinity, Narrow narrow) {
  for (std::uint32_t a = 0; a + 1 < infinity; ++a) {
    for (std::uint32_t sign : {0u, 0x8000u}) {
      const double low = ToFloat(Half{static_cast<std::uint16_t>(a)});
      const double high = ToFloat(Half{static_cast<std::uint16_t>(a + 1)});
      const auto middle = static_cast<float>((low + high) / 2);
      ASSERT_EQ(middle, (low + high) / 2);  // exact in FP32
      const float s = sign != 0 ? -1.0f : 1.0f;
      const std::uint32_t even = a % 2 == 0 ? a : a + 1;
      EXPECT_EQ(narrow(s * middle).bits, sign | even);
      EXPECT_EQ(narrow(s * std::nextafterf(middle, 0.0f)).bits, sign | a);
      EXPECT_EQ(narrow(s * std::nextafterf(middle, INFINITY)).bits, sign | (a + 1));
    }
  }
}

TEST(DTypeTest, BFloat16RoundsToNearestEven) {
  CheckRounding<BFloat16>(0x7f80, [](float v) { return ToBFloat16(v); });
}

TEST(DTypeTest, Float16RoundsToNearestEven) {
  CheckRounding<Float16>(0x7c00, [](float v) { return ToFloat16(v); });
}

TEST(DTypeTest, OverflowGivesInfinity) {
  EXPECT_EQ(ToFloat16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(ToFloat16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(ToFloat16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(ToBFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(ToBFloat16(-INFINITY).bits, 0xff80);
}

TEST(DTypeTest, NamesAndSizes) {
  EXPECT_STREQ(DTypeName(DType::kBFloat16), "bfloat16");
  EXPECT_EQ(DTypeSize(DType::kBFloat16), 2u);
  EXPECT_EQ(DTypeSize(DType::kFloat64), 8u);
  EXPECT_EQ(DTypeSize(DType::kUndefined), 0u);
}

}  // namespace
}  // namespace anabranch
