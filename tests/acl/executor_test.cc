// Executors: repeated runs, new addresses, misuse from many threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "aclnnop/aclnn_mhc_post.h"
#include "tests/acl/fixture.h"

namespace anabranch::acl_test {
namespace {

constexpr std::int64_t kD = 8;

// out[i] = x[i] + hOut for one token: hRes is absent and hPost is 1.
class ExecutorTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    ASSERT_EQ(Make(&executor_), 0) << aclGetRecentErrMsg();
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor_), 0);
  }
  void TearDown() override {
    EXPECT_EQ(aclDestroyAclOpExecutor(executor_), 0);
    EXPECT_EQ(aclrtResetDevice(0), 0);
    aclGetRecentErrMsg();
  }
  aclnnStatus Make(aclOpExecutor** executor) {
    std::uint64_t size = 0;
    return aclnnMhcPostGetWorkspaceSize(x_.tensor, nullptr, h_out_.tensor, h_post_.tensor,
                                        out_.tensor, &size, executor);
  }
  aclnnStatus Run() { return aclnnMhcPost(nullptr, 0, executor_, nullptr); }

  HostTensor<float> x_{{1, 4, kD}, ACL_FLOAT, 1.0f};
  HostTensor<float> x2_{{1, 4, kD}, ACL_FLOAT, 2.0f};
  HostTensor<float> h_out_{{1, kD}, ACL_FLOAT, 10.0f};
  HostTensor<float> h_post_{{1, 4}, ACL_FLOAT, 1.0f};
  HostTensor<float> out_{{1, 4, kD}, ACL_FLOAT};
  HostTensor<float> out2_{{1, 4, kD}, ACL_FLOAT};
  aclOpExecutor* executor_ = nullptr;
};

TEST_F(ExecutorTest, NewAddressesHoldFromTheNextRunOn) {
  ASSERT_EQ(Run(), 0);
  // 0: x, 1: hRes (null), 2: hOut, 3: hPost, 4: out; the queued run keeps its own addresses.
  ASSERT_EQ(aclSetTensorAddr(executor_, 0, x_.tensor, x2_.data.data()), 0);
  ASSERT_EQ(aclSetTensorAddr(executor_, 4, out_.tensor, out2_.data.data()), 0);
  ASSERT_EQ(Run(), 0);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  EXPECT_EQ(out_.data, std::vector<float>(4 * kD, 11.0f));
  EXPECT_EQ(out2_.data, std::vector<float>(4 * kD, 12.0f));
}

TEST_F(ExecutorTest, InputsAndOutputsCountFromZero) {
  std::vector<float> h_out(kD, 20.0f);
  ASSERT_EQ(AclSetInputTensorAddr(executor_, 2, h_out_.tensor, h_out.data()), 0);
  ASSERT_EQ(AclSetOutputTensorAddr(executor_, 0, out_.tensor, out2_.data.data()), 0);
  ASSERT_EQ(Run(), 0);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  EXPECT_EQ(out2_.data, std::vector<float>(4 * kD, 21.0f));
  ExpectFailure(aclSetInputTensorAddr(executor_, 4, x_.tensor, x_.data.data()), 161002,
                {"index is 4", "less than 4"});
  ExpectFailure(aclSetOutputTensorAddr(executor_, 1, out_.tensor, out_.data.data()), 161002,
                {"index is 1", "less than 1"});
}

// x and out exchange their buffers: in between both have one, which phase 2 never sees.
TEST_F(ExecutorTest, BuffersCanBeExchangedOneByOne) {
  std::vector<float> both(8 * kD, 5.0f);
  ASSERT_EQ(aclSetTensorAddr(executor_, 0, x_.tensor, both.data()), 0);
  ASSERT_EQ(aclSetTensorAddr(executor_, 4, out_.tensor, both.data() + kD), 0);
  ExpectFailure(Run(), 161002, {"aclnnMhcPost", "overlaps"});
  ASSERT_EQ(aclSetTensorAddr(executor_, 4, out_.tensor, both.data() + 4 * kD), 0);
  ASSERT_EQ(Run(), 0);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  EXPECT_EQ(both[4 * kD], 15.0f);
}

TEST_F(ExecutorTest, WrongAddressCallsAreRefused) {
  void* data = x2_.data.data();
  ExpectFailure(aclSetTensorAddr(nullptr, 0, x_.tensor, data), 161001, {"executor is null"});
  ExpectFailure(aclSetTensorAddr(reinterpret_cast<aclOpExecutor*>(data), 0, x_.tensor, data),
                161002, {"executor"});
  ExpectFailure(aclSetTensorAddr(executor_, 0, nullptr, data), 161001, {"tensor is null"});
  ExpectFailure(aclSetTensorAddr(executor_, 0, reinterpret_cast<aclTensor*>(executor_), data),
                161002, {"no live tensor"});
  ExpectFailure(aclSetTensorAddr(executor_, 0, x_.tensor, nullptr), 161001, {"addr is null"});
  ExpectFailure(aclSetTensorAddr(executor_, 0, x_.tensor, static_cast<char*>(data) + 2), 161002,
                {"not aligned"});
  ExpectFailure(aclSetTensorAddr(executor_, 1, x_.tensor, data), 161002, {"hRes", "null"});
  ExpectFailure(aclSetTensorAddr(executor_, 2, x_.tensor, data), 161002, {"(1, 4, 8)", "(1, 8)"});
  ExpectFailure(aclSetTensorAddr(executor_, 5, x_.tensor, data), 161002, {"less than 5"});
  const aclTensor* members[] = {HostTensor<float>({1}, ACL_FLOAT).tensor};
  EXPECT_EQ(aclCreateTensorList(members, 1), nullptr);  // destroyed just now
  aclTensorList* list = aclCreateTensorList(nullptr, 0);
  ExpectFailure(aclSetDynamicTensorAddr(executor_, 0, 0, list, data), 161002, {"relativeIndex"});
  ExpectFailure(aclSetDynamicInputTensorAddr(executor_, 0, 0, nullptr, data), 161001, {"tensors"});
  EXPECT_EQ(aclDestroyTensorList(list), 0);
  const std::int64_t one[] = {1};
  const aclTensor* some[] = {
      aclCreateTensor(one, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, one, 1, data)};
  list = aclCreateTensorList(some, 1);
  ExpectFailure(aclSetDynamicOutputTensorAddr(executor_, 0, 0, list, data), 161002,
                {"out, a tensor", "expected a list"});
  EXPECT_EQ(aclDestroyTensorList(list), 0);
  ASSERT_EQ(Run(), 0);  // as before
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  EXPECT_EQ(out_.data, std::vector<float>(4 * kD, 11.0f));
}

// The names with a capital A are the same calls.
TEST_F(ExecutorTest, CapitalNamesAreTheSameCalls) {
  ASSERT_EQ(AclSetAclOpExecutorRepeatable(executor_), 0);
  ASSERT_EQ(AclSetTensorAddr(executor_, 0, x_.tensor, x2_.data.data()), 0);
  ASSERT_EQ(Run(), 0);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  EXPECT_EQ(out_.data, std::vector<float>(4 * kD, 12.0f));
  void* const data = x2_.data.data();
  aclTensorList* list = aclCreateTensorList(nullptr, 0);
  ExpectFailure(AclSetDynamicTensorAddr(executor_, 0, 0, list, data), 161002, {"relativeIndex"});
  ExpectFailure(AclSetDynamicInputTensorAddr(executor_, 0, 0, list, data), 161002,
                {"relativeIndex"});
  ExpectFailure(AclSetDynamicOutputTensorAddr(executor_, 0, 0, list, data), 161002,
                {"relativeIndex"});
  EXPECT_EQ(aclDestroyTensorList(list), 0);
}

TEST_F(ExecutorTest, AConsumedExecutorNeverMeansANewerOne) {
  aclOpExecutor* first = nullptr;
  ASSERT_EQ(Make(&first), 0);
  ASSERT_EQ(aclnnMhcPost(nullptr, 0, first, nullptr), 0);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  for (int k = 0; k < 50; ++k) {
    aclOpExecutor* next = nullptr;
    ASSERT_EQ(Make(&next), 0);
    ExpectFailure(aclnnMhcPost(nullptr, 0, first, nullptr), 161002, {"consumed"});
    ASSERT_EQ(aclDestroyAclOpExecutor(next), 0);
  }
}

TEST_F(ExecutorTest, OfManyThreadsOneConsumes) {
  for (int round = 0; round < 20; ++round) {
    aclOpExecutor* single = nullptr;
    ASSERT_EQ(Make(&single), 0);
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStream(&stream), 0);
    std::atomic<int> taken{0};
    std::vector<std::thread> threads;
    for (int k = 0; k < 4; ++k) {
      threads.emplace_back([&] {
        const aclnnStatus status = aclnnMhcPost(nullptr, 0, single, stream);
        EXPECT_TRUE(status == 0 || status == 161002);
        taken += status == 0 ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(taken, 1);
    ASSERT_EQ(aclrtDestroyStream(stream), 0);
  }
}

TEST_F(ExecutorTest, AddressesMayChangeWhileOthersRun) {
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), 0);
  std::thread setter([&] {
    for (int k = 0; k < 50; ++k) {
      void* data = k % 2 == 0 ? x2_.data.data() : x_.data.data();
      EXPECT_EQ(aclSetTensorAddr(executor_, 0, x_.tensor, data), 0);
    }
  });
  for (int k = 0; k < 50; ++k) EXPECT_EQ(aclnnMhcPost(nullptr, 0, executor_, stream), 0);
  setter.join();
  ASSERT_EQ(aclrtDestroyStream(stream), 0);
  EXPECT_TRUE(out_.data[0] == 11.0f || out_.data[0] == 12.0f);
}

}  // namespace
}  // namespace anabranch::acl_test
