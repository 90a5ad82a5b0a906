// What the tests of the C face share.
#ifndef ANABRANCH_TESTS_ACL_FIXTURE_H_
#define ANABRANCH_TESTS_ACL_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "aclnn/aclnn_base.h"
#include "tests/words.h"

namespace anabranch::acl_test {

// A call failed with that code and left a message that has all the words.
inline void ExpectFailure(int code, int wanted, const std::vector<std::string>& words) {
  EXPECT_EQ(code, wanted);
  const std::string message = aclGetRecentErrMsg();
  EXPECT_FALSE(message.empty()) << "no message for code " << code;
  for (const std::string& word : words) {
    EXPECT_TRUE(HasWords(message, word)) << "no '" << word << "' in: " << message;
  }
}

// A tensor with its memory on the host.
template <class T>
class HostTensor {
 public:
  HostTensor(std::vector<std::int64_t> sizes, aclDataType dtype, T value = T())
      : sizes_(std::move(sizes)), dtype_(dtype) {
    std::int64_t count = 1;
    for (std::int64_t size : sizes_) count *= size;
    data.assign(static_cast<std::size_t>(count), value);
    tensor = aclCreateTensor(sizes_.data(), sizes_.size(), dtype, nullptr, 0, ACL_FORMAT_ND,
                             sizes_.data(), sizes_.size(), data.data());
  }
  ~HostTensor() { aclDestroyTensor(tensor); }
  HostTensor(const HostTensor&) = delete;
  HostTensor& operator=(const HostTensor&) = delete;

  std::vector<T> data;
  aclTensor* tensor = nullptr;

 private:
  std::vector<std::int64_t> sizes_;
  aclDataType dtype_;
};

// ANABRANCH_SOC for one scope.
class Soc {
 public:
  explicit Soc(const char* name) { setenv("ANABRANCH_SOC", name, 1); }
  ~Soc() { unsetenv("ANABRANCH_SOC"); }
};

}  // namespace anabranch::acl_test

#endif  // ANABRANCH_TESTS_ACL_FIXTURE_H_
