#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "tests/acl/fixture.h"
#include "tests/words.h"

namespace anabranch::acl_test {
namespace {

aclTensor* Make(std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides,
                std::int64_t offset, std::vector<std::int64_t> storage, void* data) {
  return aclCreateTensor(sizes.data(), sizes.size(), ACL_FLOAT,
                         strides.empty() ? nullptr : strides.data(), offset, ACL_FORMAT_ND,
                         storage.data(), storage.size(), data);
}

void ExpectRefused(aclTensor* tensor, const char* word) {
  EXPECT_EQ(tensor, nullptr);
  const std::string message = aclGetRecentErrMsg();
  EXPECT_NE(message.find("aclCreateTensor"), std::string::npos) << message;
  EXPECT_TRUE(HasWords(message, word)) << message;
}

TEST(AclTensorTest, ViewsStayInsideTheirStorage) {
  float data[24];
  aclTensor* fits = Make({2, 3}, {8, 1}, 5, {24}, data);  // last element: 5 + 8 + 2 = 15
  ASSERT_NE(fits, nullptr);
  EXPECT_EQ(aclDestroyTensor(fits), 0);
  aclTensor* exact = Make({2, 3}, {3, 1}, 18, {24}, data);
  ASSERT_NE(exact, nullptr);
  EXPECT_EQ(aclDestroyTensor(exact), 0);
  ExpectRefused(Make({2, 3}, {3, 1}, 19, {24}, data), "inside its storage");
  ExpectRefused(Make({2, 3}, {-3, 1}, 2, {24}, data), "inside its storage");
  ExpectRefused(Make({2, 3}, {}, -1, {24}, data), "offset");
  ExpectRefused(Make({-2, 3}, {}, 0, {24}, data), "viewDims");
  ExpectRefused(Make({2, 3}, {}, 0, {-24}, data), "storageDims");
  const std::int64_t huge = std::int64_t{1} << 40;
  ExpectRefused(Make({huge, huge}, {}, 0, {24}, data), "2^63");
  ExpectRefused(Make({3, 3}, {std::numeric_limits<std::int64_t>::max(), 1}, 0, {24}, data),
                "strides overflow");
  // The address may follow later; phase 2 looks at it.
  for (void* later :
       {static_cast<void*>(nullptr), static_cast<void*>(reinterpret_cast<char*>(data) + 1)}) {
    aclTensor* t = Make({2, 3}, {}, 0, {24}, later);
    ASSERT_NE(t, nullptr);
    EXPECT_EQ(aclDestroyTensor(t), 0);
  }
}

TEST(AclTensorTest, ScalarsAndEmptyTensors) {
  float value = 1;
  aclTensor* scalar =
      aclCreateTensor(nullptr, 0, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, &value);
  ASSERT_NE(scalar, nullptr);
  EXPECT_EQ(aclDestroyTensor(scalar), 0);
  aclTensor* empty = Make({0, 4}, {}, 0, {0}, nullptr);
  ASSERT_NE(empty, nullptr);
  EXPECT_EQ(aclDestroyTensor(empty), 0);
  EXPECT_EQ(aclDestroyTensor(nullptr), 0);
}

// Offsets and storages whose bytes do not fit 63 bits, also where nothing is read.
TEST(AclTensorTest, NothingReachesBeyondMemory) {
  float data[4];
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_EQ(Make({0, 4}, {}, kHuge, {0}, data), nullptr);
  ExpectFailure(0, 0, {"aclCreateTensor", "2^63 bytes"});
  EXPECT_EQ(Make({4}, {}, kHuge - 4, {kHuge}, data), nullptr);
  ExpectFailure(0, 0, {"aclCreateTensor", "2^63 bytes"});
}

TEST(AclTensorTest, ListsOwnTheirMembers) {
  float data[4];
  const aclTensor* members[] = {Make({4}, {}, 0, {4}, data), Make({2}, {}, 0, {4}, data)};
  aclTensorList* list = aclCreateTensorList(members, 2);
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(aclDestroyTensorList(list), 0);
  ExpectFailure(aclDestroyTensor(members[0]), 161002, {"no live tensor"});
  ExpectFailure(aclDestroyTensorList(list), 161002, {"no live list"});
  const aclTensor* bad[] = {nullptr};
  EXPECT_EQ(aclCreateTensorList(bad, 1), nullptr);
  EXPECT_NE(std::string(aclGetRecentErrMsg()).find("value[0]"), std::string::npos);
  EXPECT_EQ(aclCreateTensorList(nullptr, 1), nullptr);
  aclTensorList* none = aclCreateTensorList(nullptr, 0);
  ASSERT_NE(none, nullptr);
  EXPECT_EQ(aclDestroyTensorList(none), 0);
}

}  // namespace
}  // namespace anabranch::acl_test
