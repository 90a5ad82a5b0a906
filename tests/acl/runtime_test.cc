#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_mhc_post.h"
#include "securec.h"
#include "tests/acl/fixture.h"

namespace anabranch::acl_test {
namespace {

TEST(RuntimeTest, InitAndFinalizeAreLenient) {
  EXPECT_EQ(aclInit(nullptr), 0);
  ExpectFailure(aclInit(nullptr), 100002, {"aclInit"});
  EXPECT_EQ(aclFinalize(), 0);
  ExpectFailure(aclFinalize(), 100037, {"aclFinalize"});
  ExpectFailure(aclInit("/no/such/file.json"), 100000, {"/no/such/file.json"});
  EXPECT_EQ(aclInit(nullptr), 0);
  EXPECT_EQ(aclFinalize(), 0);
}

TEST(RuntimeTest, MessagesAreReturnedOnceNewestFirst) {
  aclGetRecentErrMsg();
  EXPECT_STREQ(aclGetRecentErrMsg(), "");
  aclrtFree(nullptr);
  aclrtMalloc(nullptr, 8, ACL_MEM_MALLOC_HUGE_FIRST);
  const std::string both = aclGetRecentErrMsg();
  EXPECT_LT(both.find("aclrtMalloc"), both.find("aclrtFree"));
  EXPECT_STREQ(aclGetRecentErrMsg(), "");
  std::thread([] { EXPECT_STREQ(aclGetRecentErrMsg(), ""); }).join();
}

TEST(RuntimeTest, MemoryIsAlignedAndChecked) {
  void* p = nullptr;
  ASSERT_EQ(aclrtMalloc(&p, 100, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0u);
  EXPECT_EQ(aclrtFree(p), 0);
  ExpectFailure(aclrtFree(p), 107000, {"aclrtFree", "freed already"});
  int on_stack = 0;
  ExpectFailure(aclrtFree(&on_stack), 107000, {"aclrtMalloc"});
  ExpectFailure(aclrtFree(nullptr), 100000, {"null"});
  ExpectFailure(aclrtMalloc(&p, 0, ACL_MEM_MALLOC_HUGE_FIRST), 100000, {"size is 0"});
  ExpectFailure(aclrtMalloc(nullptr, 1, ACL_MEM_MALLOC_HUGE_FIRST), 100000, {"devPtr"});
  ExpectFailure(aclrtMalloc(&p, 1, static_cast<aclrtMemMallocPolicy>(77)), 100000, {"policy"});
  ExpectFailure(
      aclrtMalloc(&p, std::numeric_limits<std::size_t>::max(), ACL_MEM_MALLOC_NORMAL_ONLY), 207001,
      {"no memory"});
}

TEST(RuntimeTest, CopiesAreBounded) {
  char from[8] = "abcdefg";
  char to[8] = {};
  EXPECT_EQ(aclrtMemcpy(to, 8, from, 8, ACL_MEMCPY_HOST_TO_DEVICE), 0);
  EXPECT_STREQ(to, "abcdefg");
  ExpectFailure(aclrtMemcpy(to, 4, from, 8, ACL_MEMCPY_HOST_TO_HOST), 107000, {"destMax = 4"});
  ExpectFailure(aclrtMemcpy(nullptr, 4, from, 4, ACL_MEMCPY_HOST_TO_HOST), 100000, {"dst"});
  ExpectFailure(aclrtMemcpy(to, 4, nullptr, 4, ACL_MEMCPY_HOST_TO_HOST), 100000, {"src"});
  EXPECT_EQ(memcpy_s(to, 8, "xy", 3), 0);
  EXPECT_STREQ(to, "xy");
  EXPECT_NE(memcpy_s(to, 2, "xyz", 4), 0);
  EXPECT_EQ(strcat_s(to, 8, "zzz"), 0);
  EXPECT_STREQ(to, "xyzzz");
  EXPECT_NE(strcat_s(to, 8, "0123456789"), 0);
  EXPECT_STREQ(to, "xyzzz");
}

TEST(RuntimeTest, HalfFloatsSaturate) {
  EXPECT_EQ(aclFloat16ToFloat(0x3c00), 1.0f);
  EXPECT_EQ(aclFloatToFloat16(1.0f), 0x3c00);
  EXPECT_EQ(aclFloat16ToFloat(aclFloatToFloat16(1e9f)), 65504.0f);
  EXPECT_EQ(aclFloat16ToFloat(aclFloatToFloat16(NAN)), 65504.0f);
  EXPECT_EQ(aclFloat16ToFloat(aclFloatToFloat16(-INFINITY)), -65504.0f);
  EXPECT_EQ(aclFloatToFloat16(5.9604645e-8f), 1);
}

TEST(RuntimeTest, ParametersAreRemembered) {
  std::int64_t value = -1;
  ExpectFailure(aclrtGetSysParamOpt(ACL_OPT_STRONG_CONSISTENCY, &value), 107021, {"never set"});
  for (const std::int64_t level : {-1, 0, 1, 2, 99}) {  // whatever is set: all of them hold
    EXPECT_EQ(aclrtSetSysParamOpt(ACL_OPT_DETERMINISTIC, level), 0);
    EXPECT_EQ(aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value), 0);
    EXPECT_EQ(value, level);
  }
  ExpectFailure(aclrtSetSysParamOpt(static_cast<aclSysParamOpt>(3), 1), 100000, {"opt"});
  ExpectFailure(aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, nullptr), 100000, {"value"});
}

TEST(RuntimeTest, ContextsArePerThreadAndCounted) {
  std::thread([] {
    aclrtContext context = nullptr;
    aclrtStream stream = nullptr;
    ExpectFailure(aclrtGetCurrentContext(&context), 107002, {"no context"});
    ExpectFailure(aclrtCreateStream(&stream), 107002, {"no context"});
    ExpectFailure(aclrtSynchronizeStream(nullptr), 107002, {"no context"});
    ASSERT_EQ(aclrtSetDevice(0), 0);
    ASSERT_EQ(aclrtSetDevice(0), 0);
    ASSERT_EQ(aclrtGetCurrentContext(&context), 0);
    EXPECT_EQ(aclrtResetDevice(0), 0);
    EXPECT_EQ(aclrtGetCurrentContext(&context), 0);
    EXPECT_EQ(aclrtResetDevice(0), 0);
    ExpectFailure(aclrtGetCurrentContext(&context), 107002, {"no context"});
    ExpectFailure(aclrtResetDevice(0), 107000, {"aclrtSetDevice"});
    ExpectFailure(aclrtSetDevice(3), 107001, {"deviceId is 3"});
    ExpectFailure(aclrtSetDevice(-1), 107001, {"deviceId is -1"});
  }).join();
}

TEST(RuntimeTest, OwnContextsAndTheirStreams) {
  aclrtContext context = nullptr;
  ASSERT_EQ(aclrtCreateContext(&context, 0), 0);
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), 0);
  std::thread([&] {
    EXPECT_EQ(aclrtSynchronizeStream(stream), 0);  // an explicit stream needs no context
    EXPECT_EQ(aclrtSetCurrentContext(context), 0);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
  }).join();
  EXPECT_EQ(aclrtDestroyContext(context), 0);
  ExpectFailure(aclrtSynchronizeStream(stream), 107017, {"no live stream"});
  ExpectFailure(aclrtDestroyContext(context), 107017, {"no live context"});
  ExpectFailure(aclrtSetCurrentContext(context), 107017, {"no live context"});
  ExpectFailure(aclrtDestroyContext(nullptr), 100000, {"null"});
  ASSERT_EQ(aclrtSetDevice(0), 0);
  ASSERT_EQ(aclrtGetCurrentContext(&context), 0);
  ExpectFailure(aclrtDestroyContext(context), 107000, {"aclrtResetDevice"});
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

TEST(RuntimeTest, WrongHandlesAreFoundOut) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), 0);
  HostTensor<float> tensor({2}, ACL_FLOAT);
  ExpectFailure(aclrtDestroyStream(tensor.tensor), 107017, {"no live stream"});
  ExpectFailure(aclrtDestroyContext(stream), 107017, {"no live context"});
  ExpectFailure(aclDestroyTensor(static_cast<aclTensor*>(stream)), 161002, {"no live tensor"});
  ExpectFailure(aclrtSynchronizeStream(reinterpret_cast<aclrtStream>(std::uintptr_t{12345})),
                107017, {"no live stream"});
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
  ExpectFailure(aclrtDestroyStream(stream), 107017, {"no live stream"});
  ExpectFailure(aclrtDestroyStream(nullptr), 100000, {"null"});
  ExpectFailure(aclrtCreateStream(nullptr), 100000, {"null"});
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

TEST(RuntimeTest, SocNames) {
  EXPECT_STREQ(aclrtGetSocName(), "Ascend950PR");
  {
    const Soc soc("a2");
    EXPECT_STREQ(aclrtGetSocName(), "Ascend910B1");
  }
  {
    const Soc soc("a3");
    EXPECT_STREQ(aclrtGetSocName(), "Ascend910_9392");
  }
  {
    const Soc soc("950");
    EXPECT_STREQ(aclrtGetSocName(), "Ascend950PR");
  }
  const Soc soc("b7");
  ExpectFailure(aclInit(nullptr), 100000, {"b7", "native, a2, a3, 950"});
  ExpectFailure(aclrtSetDevice(0), 100000, {"b7", "native, a2, a3, 950"});
}

}  // namespace
}  // namespace anabranch::acl_test
