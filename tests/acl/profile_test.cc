// Each limit of each profile: one just inside, one just outside.
#include <gtest/gtest.h>

#include "aclnnop/aclnn_mhc_post.h"
#include "aclnnop/aclnn_mhc_post_backward.h"
#include "tests/acl/fixture.h"

namespace anabranch::acl_test {
namespace {

struct Shape {
  std::int64_t n = 4;
  std::int64_t d = 128;
  bool tnd = false;
  bool res = true;
  bool bf16 = true;
};

aclnnStatus PostPhaseOne(const Shape& s) {
  const auto sizes = [&](std::vector<std::int64_t> inner) {
    std::vector<std::int64_t> all =
        s.tnd ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{1, 1};
    all.insert(all.end(), inner.begin(), inner.end());
    return all;
  };
  const aclDataType dtype = s.bf16 ? ACL_BF16 : ACL_FLOAT;
  HostTensor<float> x(sizes({s.n, s.d}), dtype), h_out(sizes({s.d}), dtype);
  HostTensor<float> out(sizes({s.n, s.d}), dtype);
  HostTensor<float> res(sizes({s.n, s.n}), ACL_FLOAT), post(sizes({s.n}), ACL_FLOAT);
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  const aclnnStatus status =
      aclnnMhcPostGetWorkspaceSize(x.tensor, s.res ? res.tensor : nullptr, h_out.tensor,
                                   post.tensor, out.tensor, &size, &executor);
  if (status == 0) aclDestroyAclOpExecutor(executor);
  return status;
}

TEST(ProfileTest, NativeHasNoLimits) {
  EXPECT_EQ(PostPhaseOne({.n = 1, .d = 1, .bf16 = false}), 0);
  EXPECT_EQ(PostPhaseOne({.n = 16, .d = 100001, .res = false}), 0);
}

TEST(ProfileTest, PostOnEveryProfile) {
  for (const char* name : {"a2", "a3", "950"}) {
    const Soc soc(name);
    EXPECT_EQ(PostPhaseOne({}), 0) << name;
    EXPECT_EQ(PostPhaseOne({.tnd = true}), 0) << name;
    EXPECT_EQ(PostPhaseOne({.d = 99968}), 0) << name;
    ExpectFailure(PostPhaseOne({.n = 3}), 561103, {"n is 3", "expected 4", name});
    ExpectFailure(PostPhaseOne({.n = 5}), 561103, {"n is 5"});
    ExpectFailure(PostPhaseOne({.d = 127}), 561103, {"D is 127", "multiple of 128"});
    ExpectFailure(PostPhaseOne({.d = 100096}), 561103, {"D is 100096", "up to 100000"});
    ExpectFailure(PostPhaseOne({.bf16 = false}), 161002, {"FLOAT", name});
  }
}

TEST(ProfileTest, PostWithoutHRes) {
  for (const char* name : {"a2", "a3"}) {
    const Soc soc(name);
    ExpectFailure(PostPhaseOne({.res = false}), 361001, {"hRes is null", name});
  }
  const Soc soc("950");
  EXPECT_EQ(PostPhaseOne({.res = false}), 0);
}

TEST(ProfileTest, UnknownProfilesListTheKnownOnes) {
  const Soc soc("h200");
  ExpectFailure(PostPhaseOne({}), 361001, {"h200", "native, a2, a3, 950"});
}

}  // namespace
}  // namespace anabranch::acl_test
