// Scalars, arrays, lists, getters, and the rest of the runtime that needs no stream.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>

#include "tests/acl/fixture.h"
#include "tests/words.h"

namespace anabranch::acl_test {
namespace {

void ExpectMessage(const char* word) {
  const std::string message = aclGetRecentErrMsg();
  EXPECT_TRUE(HasWords(message, word)) << message;
}

TEST(AclObjectTest, ArraysAndScalars) {
  const std::int64_t ints[] = {1, 2, 3};
  const float floats[] = {1, 2};
  const bool bools[] = {true};
  double value = 2.5;
  std::uint64_t size = 0;
  aclIntArray* int_array = aclCreateIntArray(ints, 3);
  EXPECT_EQ(aclGetIntArraySize(int_array, &size), 0);
  EXPECT_EQ(size, 3u);
  aclFloatArray* float_array = aclCreateFloatArray(floats, 2);
  EXPECT_EQ(aclGetFloatArraySize(float_array, &size), 0);
  EXPECT_EQ(size, 2u);
  aclBoolArray* bool_array = aclCreateBoolArray(bools, 1);
  EXPECT_EQ(aclGetBoolArraySize(bool_array, &size), 0);
  EXPECT_EQ(size, 1u);
  aclScalar* scalar = aclCreateScalar(&value, ACL_DOUBLE);
  ASSERT_NE(scalar, nullptr);
  const aclScalar* members[] = {scalar};
  aclScalarList* list = aclCreateScalarList(members, 1);
  EXPECT_EQ(aclGetScalarListSize(list, &size), 0);
  EXPECT_EQ(size, 1u);
  ExpectFailure(aclGetIntArraySize(reinterpret_cast<aclIntArray*>(list), &size), 161002, {"array"});
  ExpectFailure(aclGetIntArraySize(nullptr, &size), 161001, {"array is null"});
  ExpectFailure(aclGetIntArraySize(int_array, nullptr), 161001, {"size is null"});
  EXPECT_EQ(aclDestroyScalarList(list), 0);
  ExpectFailure(aclDestroyScalar(scalar), 161002, {"no live scalar"});  // the list owned it
  EXPECT_EQ(aclDestroyIntArray(int_array), 0);
  ExpectFailure(aclDestroyIntArray(int_array), 161002, {"no live array"});
  EXPECT_EQ(aclDestroyFloatArray(float_array), 0);
  EXPECT_EQ(aclDestroyBoolArray(bool_array), 0);
  EXPECT_EQ(aclDestroyBoolArray(nullptr), 0);
}

TEST(AclObjectTest, WrongArraysAndScalars) {
  std::int64_t one = 1;
  EXPECT_EQ(aclCreateIntArray(nullptr, 1), nullptr);
  ExpectMessage("value is null");
  EXPECT_EQ(aclCreateIntArray(&one, std::numeric_limits<std::uint64_t>::max()), nullptr);
  ExpectMessage("size is");
  EXPECT_EQ(aclCreateScalar(nullptr, ACL_INT64), nullptr);
  ExpectMessage("value is null");
  EXPECT_EQ(aclCreateScalar(&one, ACL_INT4), nullptr);
  ExpectMessage("dataType");
  const aclScalar* bad[] = {reinterpret_cast<const aclScalar*>(&one)};
  EXPECT_EQ(aclCreateScalarList(bad, 1), nullptr);
  ExpectMessage("value[0]");
  EXPECT_EQ(aclCreateTensorList(nullptr, std::numeric_limits<std::uint64_t>::max()), nullptr);
  ExpectMessage("value is null");
  const aclTensor* no_tensor[] = {nullptr};
  EXPECT_EQ(aclCreateTensorList(no_tensor, std::numeric_limits<std::uint64_t>::max()), nullptr);
  ExpectMessage("size is");
}

TEST(AclObjectTest, TensorGetters) {
  float data[64];
  const std::int64_t sizes[] = {2, 3};
  const std::int64_t strides[] = {10, 2};
  const std::int64_t storage[] = {64};
  aclTensor* tensor =
      aclCreateTensor(sizes, 2, ACL_FLOAT, strides, 5, ACL_FORMAT_NCHW, storage, 1, data);
  ASSERT_NE(tensor, nullptr);
  const auto check = [&](auto getter, std::vector<std::int64_t> want) {
    std::int64_t* values = nullptr;
    std::uint64_t count = 0;
    ASSERT_EQ(getter(tensor, &values, &count), 0);
    const std::unique_ptr<std::int64_t[]> owned(values);
    EXPECT_EQ(std::vector<std::int64_t>(values, values + count), want);
    ExpectFailure(getter(nullptr, &values, &count), 161001, {"tensor is null"});
    ExpectFailure(getter(tensor, nullptr, &count), 161001, {"null"});
    ExpectFailure(getter(reinterpret_cast<aclTensor*>(data), &values, &count), 161002, {"live"});
  };
  check(aclGetViewShape, {2, 3});
  check(aclGetViewStrides, {10, 2});
  check(aclGetStorageShape, {64});
  std::int64_t offset = 0;
  aclFormat format = ACL_FORMAT_ND;
  aclDataType dtype = ACL_DT_UNDEFINED;
  EXPECT_EQ(aclGetViewOffset(tensor, &offset), 0);
  EXPECT_EQ(aclGetFormat(tensor, &format), 0);
  EXPECT_EQ(aclGetDataType(tensor, &dtype), 0);
  EXPECT_EQ(offset, 5);
  EXPECT_EQ(format, ACL_FORMAT_NCHW);
  EXPECT_EQ(dtype, ACL_FLOAT);
  const aclTensor* members[] = {tensor};
  aclTensorList* list = aclCreateTensorList(members, 1);
  std::uint64_t size = 0;
  EXPECT_EQ(aclGetTensorListSize(list, &size), 0);
  EXPECT_EQ(size, 1u);
  EXPECT_EQ(aclDestroyTensorList(list), 0);
}

TEST(AclObjectTest, AHandleNeverComesBack) {
  const float value[] = {1};
  aclFloatArray* first = aclCreateFloatArray(value, 1);
  ASSERT_EQ(aclDestroyFloatArray(first), 0);
  for (int k = 0; k < 100; ++k) {
    aclFloatArray* next = aclCreateFloatArray(value, 1);
    ASSERT_NE(next, first);
    ASSERT_EQ(aclDestroyFloatArray(next), 0);
  }
  ExpectFailure(aclDestroyFloatArray(first), 161002, {"no live array"});
}

TEST(AclObjectTest, HostMemoryHasItsOwnFree) {
  void* host = nullptr;
  void* device = nullptr;
  ASSERT_EQ(aclrtMallocHost(&host, 10), 0);
  ASSERT_EQ(aclrtMalloc(&device, 10, ACL_MEM_MALLOC_NORMAL_ONLY), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(host) % 64, 0u);
  ExpectFailure(aclrtFree(host), 107000, {"aclrtMalloc"});
  ExpectFailure(aclrtFreeHost(device), 107000, {"aclrtMallocHost"});
  EXPECT_EQ(aclrtMemset(host, 10, 7, 10), 0);
  EXPECT_EQ(static_cast<unsigned char*>(host)[9], 7);
  ExpectFailure(aclrtMemset(host, 10, 7, 11), 107000, {"maxCount = 10"});
  ExpectFailure(aclrtMemset(nullptr, 10, 7, 1), 100000, {"devPtr"});
  EXPECT_EQ(aclrtFreeHost(host), 0);
  EXPECT_EQ(aclrtFree(device), 0);
  ExpectFailure(aclrtFreeHost(nullptr), 100000, {"null"});
  ExpectFailure(aclrtMallocHost(&host, 0), 100000, {"size is 0"});
  ExpectFailure(aclrtMallocHost(nullptr, 1), 100000, {"hostPtr"});
}

TEST(AclObjectTest, MachineFacts) {
  std::size_t free = 0;
  std::size_t total = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), 0);
  EXPECT_GT(free, 0u);
  EXPECT_GE(total, free);
  // The machine's own number, within what the kernel keeps for itself.
  const auto pages = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES));
  EXPECT_EQ(total, pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  ExpectFailure(aclrtGetMemInfo(ACL_HBM_MEM, nullptr, &total), 100000, {"free"});
  ExpectFailure(aclrtGetMemInfo(static_cast<aclrtMemAttr>(10), &free, &total), 100000, {"attr"});
  aclrtRunMode mode = ACL_DEVICE;
  EXPECT_EQ(aclrtGetRunMode(&mode), 0);
  EXPECT_EQ(mode, ACL_HOST);
  ExpectFailure(aclrtGetRunMode(nullptr), 100000, {"runMode"});
  std::uint32_t count = 0;
  EXPECT_EQ(aclrtGetDeviceCount(&count), 0);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(aclDataTypeSize(ACL_BF16), 2u);
  EXPECT_EQ(aclDataTypeSize(ACL_COMPLEX128), 16u);
  EXPECT_EQ(aclDataTypeSize(ACL_INT4), 0u);
  EXPECT_EQ(aclDataTypeSize(static_cast<aclDataType>(50)), 0u);
}

// Between what the stream slept and what this thread saw pass: milliseconds, not another unit.
TEST(AclObjectTest, ElapsedTimeIsInMilliseconds) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  aclrtStream stream = nullptr;
  aclrtEvent start = nullptr;
  aclrtEvent end = nullptr;
  float ms = -1;
  ASSERT_EQ(aclrtSetDevice(0), 0);
  ASSERT_EQ(aclrtCreateStream(&stream), 0);
  ASSERT_EQ(aclrtCreateEvent(&start), 0);
  ASSERT_EQ(aclrtCreateEvent(&end), 0);
  const auto before = now();
  ASSERT_EQ(aclrtRecordEvent(start, stream), 0);
  const auto sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(4)); };
  ASSERT_EQ(aclrtLaunchHostFunc(stream, sleep, nullptr), 0);
  ASSERT_EQ(aclrtRecordEvent(end, stream), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  const std::chrono::duration<float, std::milli> seen = now() - before;
  ASSERT_EQ(aclrtEventElapsedTime(&ms, start, end), 0);
  EXPECT_GE(ms, 4.0f);
  EXPECT_LE(ms, seen.count());
  EXPECT_EQ(aclrtDestroyEvent(start), 0);
  EXPECT_EQ(aclrtDestroyEvent(end), 0);
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

TEST(AclObjectTest, AnyStreamPriorityIsAccepted) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  for (const std::uint32_t priority : {0u, 7u, 0xffffffffu}) {
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStreamWithConfig(&stream, priority, 0), 0);
    EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
    EXPECT_EQ(aclrtDestroyStream(stream), 0);
  }
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

TEST(AclObjectTest, LastErrorIsPerThreadAndForgotten) {
  aclrtGetLastError(ACL_RT_THREAD_LEVEL);
  EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 0);
  ExpectFailure(aclrtSetDevice(9), 107001, {"deviceId is 9"});
  std::thread([] { EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 0); }).join();
  EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 107001);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 107001);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 0);
  ExpectFailure(aclrtGetLastError(static_cast<aclrtLastErrLevel>(1)), 100000, {"level is 1"});
}

TEST(AclObjectTest, InitialisationIsCounted) {
  std::uint64_t left = 99;
  EXPECT_EQ(aclInit(nullptr), 0);
  ExpectFailure(aclInit(nullptr), 100002, {"aclInit"});
  EXPECT_EQ(aclFinalizeReference(&left), 0);
  EXPECT_EQ(left, 1u);
  EXPECT_EQ(aclFinalizeReference(&left), 0);
  EXPECT_EQ(left, 0u);
  ExpectFailure(aclFinalizeReference(nullptr), 100037, {"aclFinalizeReference"});
  EXPECT_EQ(aclnnInit(nullptr), 0);
  ExpectFailure(aclnnInit("/no/such/file"), 161002, {"/no/such/file"});
  EXPECT_EQ(aclnnFinalize(), 0);
}

TEST(AclObjectTest, ContextsHaveTheirOwnParameters) {
  std::int64_t value = 0;
  std::thread([&] {
    ExpectFailure(aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1), 107002, {"no context"});
    ExpectFailure(aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value), 107002, {"no context"});
  }).join();
  ASSERT_EQ(aclrtSetDevice(0), 0);
  ExpectFailure(aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value), 107021, {"never set"});
  EXPECT_EQ(aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, 2), 0);
  EXPECT_EQ(aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value), 0);
  EXPECT_EQ(value, 2);
  ASSERT_EQ(aclrtSetDevice(0), 0);
  EXPECT_EQ(aclrtResetDeviceForce(0), 0);
  ExpectFailure(aclrtResetDevice(0), 107000, {"aclrtSetDevice"});
  EXPECT_EQ(aclrtResetDeviceForce(0), 0);
  ExpectFailure(aclrtResetDeviceForce(1), 107001, {"deviceId is 1"});
}

TEST(AclObjectTest, TheLogShowsItsLevelAndAbove) {
  testing::internal::CaptureStderr();
  ACL_APP_LOG(ACL_ERROR, "lost %d of %s", 3, "five");
  ACL_APP_LOG(ACL_INFO, "quiet");
  setenv("ANABRANCH_LOG_LEVEL", "1", 1);
  ACL_APP_LOG(ACL_INFO, "loud");
  unsetenv("ANABRANCH_LOG_LEVEL");
  aclAppLog(ACL_ERROR, nullptr, nullptr, 1, nullptr);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("[ERROR]"), std::string::npos) << text;
  EXPECT_NE(text.find("object_test.cc"), std::string::npos);
  EXPECT_NE(text.find("lost 3 of five\n"), std::string::npos);
  EXPECT_EQ(text.find("quiet"), std::string::npos);
  EXPECT_NE(text.find("[INFO]"), std::string::npos);
}

}  // namespace
}  // namespace anabranch::acl_test
