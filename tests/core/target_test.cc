#include <gtest/gtest.h>

#include "anabranch/cpu.h"

namespace anabranch {
namespace {

TEST(TargetTest, SupportedTargetsHaveNamesThatParse) {
  const std::vector<Target> targets = SupportedTargets();
  ASSERT_FALSE(targets.empty());
  for (Target target : targets) {
    Target parsed = Target::kAuto;
    ASSERT_TRUE(ParseTarget(TargetName(target), &parsed).ok());
    EXPECT_EQ(parsed, target);
  }
}

TEST(TargetTest, UnknownNamesListThePossibleOnes) {
  Target target = Target::kAuto;
  const Status status = ParseTarget("avx9000", &target);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("avx9000"), std::string::npos);
  EXPECT_NE(status.message().find(TargetName(SupportedTargets().front())), std::string::npos);
}

TEST(TargetTest, TargetsOfOtherMachinesAreRefused) {
#if defined(__x86_64__)
  const Target foreign = Target::kNeon;
#else
  const Target foreign = Target::kAvx2;
#endif
  Target target = Target::kAuto;
  EXPECT_FALSE(ResolveTarget(foreign, &target).ok());
}

TEST(TargetTest, CpuInfoIsPlausible) {
  const CpuInfo& info = GetCpuInfo();
  EXPECT_GE(info.threads, 1);
  EXPECT_GE(info.l1d_bytes, 4 << 10);
  EXPECT_GE(info.llc_bytes, info.l1d_bytes);
}

}  // namespace
}  // namespace anabranch
