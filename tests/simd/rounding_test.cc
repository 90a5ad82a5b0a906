// Every rounding and widening of src/simd against its definition, bit for bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "src/kernels/gates.h"
#include "tests/simd/simd_test.h"

namespace anabranch::simd_test {
namespace {

class EveryTarget : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    f_ = Of(GetParam());
    ASSERT_EQ(f_.target(), static_cast<int>(GetParam())) << "another target ran";
  }
  Functions f_ = {};
};

INSTANTIATE_TEST_SUITE_P(Targets, EveryTarget, testing::ValuesIn(SupportedTargets()),
                         [](const auto& param_info) { return TargetName(param_info.param); });

bool IsNan(std::uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

// Nearest, ties to even, by what is cut off.
std::uint16_t BFloat16Of(std::uint32_t bits) {
  const std::uint32_t upper = bits >> 16;
  const std::uint32_t cut = bits & 0xffffu;
  const bool up = cut > 0x8000u || (cut == 0x8000u && upper % 2 == 1);
  return static_cast<std::uint16_t>(upper + (up ? 1 : 0));
}

// All carries of the rounding: every upper half with the lower halves at which something happens.
std::vector<std::uint32_t> Float32Bits() {
  std::vector<std::uint32_t> lower = {0,      1,      2,      0x7ffd, 0x7ffe, 0x7fff, 0x8000,
                                      0x8001, 0x8002, 0x8003, 0xfffd, 0xfffe, 0xffff};
  std::mt19937 random(7);
  while (lower.size() < 16) lower.push_back(random() & 0xffffu);
  std::vector<std::uint32_t> all;
  all.reserve(lower.size() << 16);
  for (std::uint32_t upper = 0; upper < 0x10000u; ++upper) {
    for (std::uint32_t low : lower) all.push_back(upper << 16 | low);
  }
  return all;
}

TEST_P(EveryTarget, RoundsToBFloat16) {
  const std::vector<std::uint32_t> bits = Float32Bits();
  ASSERT_EQ(bits.size() % 32, 0u);
  for (bool clean_nan : {false, true}) {
    for (std::size_t k = 0; k < bits.size(); k += 32) {
      float lanes[32];
      for (std::size_t i = 0; i < 32; ++i) {
        // The second form is promised NaNs with an empty lower half only.
        const bool nan = clean_nan && IsNan(bits[k + i]);
        lanes[i] = std::bit_cast<float>(nan ? bits[k + i] & 0xffff0000u : bits[k + i]);
      }
      std::uint16_t unit[32] = {};
      f_.round_bfloat16(lanes, lanes + 16, clean_nan, unit);
      for (std::size_t i = 0; i < 32; ++i) {
        const auto in = std::bit_cast<std::uint32_t>(lanes[i]);
        // Lane i of a is element 2i, of b element 2i + 1.
        const std::uint16_t got = unit[i < 16 ? 2 * i : 2 * (i - 16) + 1];
        if (IsNan(in)) {
          ASSERT_GT(got & 0x7fffu, 0x7f80u) << std::hex << in << " is no NaN any more";
          ASSERT_EQ(got >> 15, in >> 31) << std::hex << in;
        } else {
          ASSERT_EQ(got, BFloat16Of(in)) << std::hex << in;
        }
      }
    }
  }
}

TEST_P(EveryTarget, WidensEveryBFloat16) {
  for (std::uint32_t first = 0; first < 0x10000u; first += 32) {
    std::uint16_t unit[32];
    for (std::uint32_t i = 0; i < 32; ++i) unit[i] = static_cast<std::uint16_t>(first + i);
    float lanes[32] = {};
    f_.widen_bfloat16(unit, lanes, lanes + 16);
    for (std::uint32_t i = 0; i < 32; ++i) {
      const float got = lanes[i % 2 == 0 ? i / 2 : 16 + i / 2];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got), (first + i) << 16);
    }
  }
}

// The value of a finite binary16.
double ValueOf(std::uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return half >> 15 != 0 ? -magnitude : magnitude;
}

TEST_P(EveryTarget, WidensEveryFloat16) {
  for (std::uint32_t first = 0; first < 0x10000u; first += 32) {
    std::uint16_t unit[32];
    for (std::uint32_t i = 0; i < 32; ++i) unit[i] = static_cast<std::uint16_t>(first + i);
    float lanes[32] = {};
    f_.widen_float16(unit, lanes, lanes + 16);
    for (std::uint32_t i = 0; i < 32; ++i) {
      const auto half = static_cast<std::uint16_t>(first + i);
      if ((half & 0x7fffu) > 0x7c00u) {
        ASSERT_TRUE(std::isnan(lanes[i])) << std::hex << half;
      } else if ((half & 0x7fffu) == 0x7c00u) {
        ASSERT_EQ(lanes[i], half >> 15 != 0 ? -HUGE_VALF : HUGE_VALF);
      } else {
        ASSERT_EQ(static_cast<double>(lanes[i]), ValueOf(half)) << std::hex << half;
        ASSERT_EQ(std::signbit(lanes[i]), half >> 15 != 0) << std::hex << half;
      }
    }
  }
}

// Nearest of the two neighbours, ties to the even one; past the middle beyond 65504: infinity.
std::uint16_t Float16Of(double value, std::uint16_t below) {
  const auto above = static_cast<std::uint16_t>(below + 1);
  const double up = above == 0x7c00u ? 65536.0 : ValueOf(above);
  const double middle = (ValueOf(below) + up) / 2;
  if (value != middle) return value > middle ? above : below;
  return below % 2 == 0 ? below : above;
}

TEST_P(EveryTarget, RoundsToFloat16AroundEveryNumber) {
  for (std::uint32_t h = 0; h < 0x7c00u; ++h) {
    const auto below = static_cast<std::uint16_t>(h);
    const double low = ValueOf(below);
    const double high = h == 0x7bffu ? 65536.0 : ValueOf(static_cast<std::uint16_t>(h + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    float lanes[32] = {};
    const float values[] = {
        static_cast<float>(low),           std::nextafter(static_cast<float>(low), HUGE_VALF),
        std::nextafter(middle, 0.0f),      middle,
        std::nextafter(middle, HUGE_VALF), std::nextafter(static_cast<float>(high), 0.0f)};
    for (std::size_t i = 0; i < std::size(values); ++i) {
      lanes[i] = values[i];
      lanes[16 + i] = -values[i];
    }
    std::uint16_t unit[32] = {};
    f_.round_float16(lanes, lanes + 16, false, unit);
    for (std::size_t i = 0; i < std::size(values); ++i) {
      const std::uint16_t want = Float16Of(values[i], below);
      ASSERT_EQ(unit[i], want) << values[i];
      ASSERT_EQ(unit[16 + i], want | 0x8000u) << -values[i];
    }
  }
}

TEST_P(EveryTarget, RoundsWhatNoFloat16Holds) {
  const float values[16] = {65520.0f,
                            65519.0f,
                            1e30f,
                            HUGE_VALF,
                            std::numeric_limits<float>::quiet_NaN(),
                            0x1p-25f,
                            0x1.000002p-25f,
                            0x1p-26f,
                            std::numeric_limits<float>::denorm_min(),
                            0.0f};
  const std::uint16_t want[] = {0x7c00, 0x7bff, 0x7c00, 0x7c00, 0x7e00, 0, 1, 0, 0, 0};
  std::uint16_t unit[32] = {};
  f_.round_float16(values, values, false, unit);
  for (std::size_t i = 0; i < std::size(want); ++i) {
    if (want[i] == 0x7e00) {
      EXPECT_GT(unit[i] & 0x7fffu, 0x7c00u);
    } else {
      EXPECT_EQ(unit[i], want[i]) << values[i];
    }
  }
}

TEST_P(EveryTarget, ReadsUnitsInTheSameLanes) {
  float unit[32];
  for (int i = 0; i < 32; ++i) unit[i] = static_cast<float>(i);
  float lanes[32] = {};
  f_.widen_float32(unit, lanes, lanes + 16);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(lanes[i], static_cast<float>(i));
}

// The definition: halves are folded onto each other, four times.
float FoldedSum(std::vector<float> lanes) {
  while (lanes.size() > 1) {
    const std::size_t half = lanes.size() / 2;
    for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    lanes.resize(half);
  }
  return lanes[0];
}

TEST_P(EveryTarget, SumsLanesInTheFixedTree) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> uniform(-1, 1);
  int distinguished = 0;
  for (int round = 0; round < 1000; ++round) {
    std::vector<float> lanes(16);
    for (float& lane : lanes) lane = std::ldexp(uniform(random), static_cast<int>(random() % 20));
    const float got = f_.sum_lanes(lanes.data());
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(FoldedSum(lanes)));
    float in_order = 0;
    for (float lane : lanes) in_order += lane;
    distinguished += in_order != got;
  }
  EXPECT_GT(distinguished, 500) << "other orders would have passed";
}

// Distance of got from the exact value, in units of the last place of a float of its size.
double Ulps(float got, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::abs(static_cast<double>(got) - exact) / ulp;
}

std::vector<float> ExpArguments() {
  std::vector<float> values;
  const auto add = [&](float low, float high, std::uint32_t step) {
    for (auto b = std::bit_cast<std::uint32_t>(low); b <= std::bit_cast<std::uint32_t>(high);
         b += step) {
      values.push_back(std::bit_cast<float>(b));
      values.push_back(-std::bit_cast<float>(b));
    }
  };
  add(0x1p-40f, 104.0f, 997);
  add(88.0f, 89.0f, 3);
  add(86.0f, 88.0f, 61);
  add(103.0f, 104.0f, 7);
  while (values.size() % 16 != 0) values.push_back(0);
  return values;
}

TEST_P(EveryTarget, ExpIsWithinTwoUlpsOverAllItsRange) {
  const std::vector<float> arguments = ExpArguments();
  std::vector<float> got = arguments;
  f_.exp(got.data(), got.size());
  double worst = 0;
  for (std::size_t k = 0; k < got.size(); ++k) {
    const double exact = std::exp(static_cast<double>(arguments[k]));
    if (exact > std::numeric_limits<float>::max()) {
      ASSERT_EQ(got[k], HUGE_VALF) << arguments[k];
      continue;
    }
    const double ulps = Ulps(got[k], exact);
    ASSERT_LE(ulps, 2) << arguments[k] << " gives " << got[k];
    worst = std::max(worst, ulps);
  }
  EXPECT_GT(worst, 0.5) << "too good to be float32 arithmetic";
}

TEST_P(EveryTarget, ExpOfSpecialValues) {
  float values[16] = {0.0f,    -0.0f,      std::numeric_limits<float>::denorm_min(),
                      100.0f,  90.0f,      -104.0f,
                      -150.0f, -HUGE_VALF, std::numeric_limits<float>::quiet_NaN()};
  f_.exp(values, 16);
  const float want[] = {1, 1, 1, HUGE_VALF, HUGE_VALF, 0, 0, 0};
  for (std::size_t i = 0; i < std::size(want); ++i) EXPECT_EQ(values[i], want[i]) << i;
  EXPECT_TRUE(std::isnan(values[8]));
}

// At the ends, float by float: to infinity and to 0 without a step back.
TEST_P(EveryTarget, ExpIsMonotonicAtItsEnds) {
  for (const float start : {88.6f, -87.4f, -104.1f}) {
    std::vector<float> values;
    for (float x = start; values.size() < 32000; x = std::nextafter(x, HUGE_VALF)) {
      values.push_back(x);
    }
    f_.exp(values.data(), values.size());
    for (std::size_t k = 1; k < values.size(); ++k) {
      ASSERT_LE(values[k - 1], values[k]) << "from " << start << ", step " << k;
    }
    EXPECT_LT(values.front(), values.back());
  }
}

TEST_P(EveryTarget, SigmoidIsCloseOverAllItsRange) {
  std::vector<float> arguments = ExpArguments();
  arguments.resize(arguments.size() - 5);  // a tail
  std::vector<float> got = arguments;
  GetSigmoid(GetParam())(got.data(), static_cast<std::int64_t>(got.size()));
  for (std::size_t k = 0; k < got.size(); ++k) {
    const double exact = 1 / (1 + std::exp(-static_cast<double>(arguments[k])));
    if (exact < std::numeric_limits<float>::min()) {
      ASSERT_LE(static_cast<double>(got[k]), 2 * exact + 0x1p-126) << arguments[k];
    } else {
      ASSERT_LE(Ulps(got[k], exact), 4) << arguments[k];
    }
  }
}

// Targets with fused multiply-add give one another's bits, those without theirs.
TEST(AllTargets, ExpHasTheSameBits) {
  const std::vector<float> arguments = ExpArguments();
  std::vector<float> first[2];
  int compared = 0;
  for (Target target : SupportedTargets()) {
    std::vector<float> got = arguments;
    Of(target).exp(got.data(), got.size());
    std::vector<float>& other = first[TargetHasFma(target) ? 1 : 0];
    if (other.empty()) {
      other = got;
      continue;
    }
    ++compared;
    for (std::size_t k = 0; k < got.size(); ++k) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[k]), std::bit_cast<std::uint32_t>(other[k]))
          << TargetName(target) << " at " << arguments[k];
    }
  }
  RecordProperty("compared", compared);
}

}  // namespace
}  // namespace anabranch::simd_test
