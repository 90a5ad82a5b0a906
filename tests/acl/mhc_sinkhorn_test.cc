#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "aclnnop/aclnn_mhc_permutation.h"
#include "aclnnop/aclnn_mhc_permutation_backward.h"
#include "aclnnop/aclnn_mhc_sinkhorn.h"
#include "aclnnop/aclnn_mhc_sinkhorn_backward.h"
#include "tests/acl/fixture.h"

namespace anabranch::acl_test {
namespace {

constexpr std::int64_t kT = 3, kN = 4, kPadded = 8;

// The golden logits and result of the contract, for every token.
const float kLogits[16] = {2, 0, 0, 0, 0, 0, 3, 0, 0, 1, 0, 0, 0, 0, 0, -1};
const double kResult[16] = {0.592519750, 0.116562194, 0.053291302, 0.237625758,
                            0.053291301, 0.077463348, 0.711326190, 0.157918157,
                            0.116562193, 0.460564612, 0.077463349, 0.345408847,
                            0.237625757, 0.345408846, 0.157918159, 0.259046239};

struct Sinkhorn {
  explicit Sinkhorn(std::int64_t num_iters)
      : iters(num_iters),
        x({kT, kN, kN}, ACL_FLOAT),
        out({kT, kN, kN}, ACL_FLOAT),
        norm({2 * num_iters * kT * kN * kPadded}, ACL_FLOAT, -7.0f),
        sum({2 * num_iters * kT * kPadded}, ACL_FLOAT, -7.0f) {
    for (std::size_t k = 0; k < x.data.size(); ++k) x.data[k] = kLogits[k % 16];
  }
  aclnnStatus PhaseOne(bool with_caches) {
    return aclnnMhcSinkhornGetWorkspaceSize(x.tensor, 1e-6f, iters, out.tensor,
                                            with_caches ? norm.tensor : nullptr,
                                            with_caches ? sum.tensor : nullptr, &size, &executor);
  }
  void Run() {
    std::vector<float> workspace(size / 4 + 32);
    void* aligned = workspace.data();
    std::size_t space = workspace.size() * 4;
    ASSERT_NE(std::align(64, size + 1, aligned, space), nullptr);
    ASSERT_EQ(aclnnMhcSinkhorn(aligned, size, executor, nullptr), 0) << aclGetRecentErrMsg();
    ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  }
  std::int64_t iters;
  HostTensor<float> x, out, norm, sum;
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
};

class AclnnMhcSinkhorn : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(aclrtSetDevice(0), 0); }
  void TearDown() override { ASSERT_EQ(aclrtResetDevice(0), 0); }
};

TEST_F(AclnnMhcSinkhorn, GoldenValuesWithAndWithoutCaches) {
  for (bool caches : {false, true}) {
    Sinkhorn call(20);
    ASSERT_EQ(call.PhaseOne(caches), 0) << aclGetRecentErrMsg();
    call.Run();
    for (std::size_t k = 0; k < call.out.data.size(); ++k) {
      EXPECT_NEAR(call.out.data[k], kResult[k % 16], 2e-6);
    }
  }
}

TEST_F(AclnnMhcSinkhorn, SlotZeroIsTheSoftmaxWithoutEpsAndPaddingIsZero) {
  Sinkhorn call(2);
  ASSERT_EQ(call.PhaseOne(true), 0);
  call.Run();
  for (std::size_t i = 0; i < 4; ++i) {
    double row = 0;
    for (std::size_t j = 0; j < 8; ++j) {
      const float value = call.norm.data[i * kPadded + j];
      if (j < 4) row += value;
      if (j >= 4) {
        EXPECT_EQ(value, 0.0f);
      }
    }
    EXPECT_NEAR(row, 1.0, 3e-7);  // with eps it would be 1 + 4e-6
    EXPECT_EQ(call.sum.data[4 + i], 0.0f);
  }
}

// Equal calls give equal caches to the last byte: whatever lay in the padding, and whether the
// matrices are [T, n, n] or [B, S, n, n].
TEST_F(AclnnMhcSinkhorn, CachesAreEqualToTheLastByte) {
  Sinkhorn call(3);
  ASSERT_EQ(call.PhaseOne(true), 0);
  call.Run();
  const auto norm = call.norm.data;
  const auto sum = call.sum.data;
  for (float& value : call.norm.data) value = std::numeric_limits<float>::quiet_NaN();
  for (float& value : call.sum.data) value = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int64_t> sizes = {1, kT, kN, kN};
  const auto reshaped = [&](std::vector<float>& data) {
    return aclCreateTensor(sizes.data(), sizes.size(), ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND,
                           sizes.data(), sizes.size(), data.data());
  };
  aclTensor* x = reshaped(call.x.data);
  aclTensor* out = reshaped(call.out.data);
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnMhcSinkhornGetWorkspaceSize(x, 1e-6f, 3, out, call.norm.tensor, call.sum.tensor,
                                             &size, &executor),
            0)
      << aclGetRecentErrMsg();
  void* workspace = nullptr;
  if (size > 0) {
    ASSERT_EQ(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  }
  ASSERT_EQ(aclnnMhcSinkhorn(workspace, size, executor, nullptr), 0);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  EXPECT_EQ(std::memcmp(call.norm.data.data(), norm.data(), norm.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(call.sum.data.data(), sum.data(), sum.size() * sizeof(float)), 0);
  if (workspace != nullptr) aclrtFree(workspace);
  aclDestroyTensor(x);
  aclDestroyTensor(out);
}

// Against central differences of the forward call, in FP32: a loose bound that a transposed,
// shifted or eps-laden backward misses by far.
TEST_F(AclnnMhcSinkhorn, BackwardFromTheCaches) {
  Sinkhorn call(5);
  ASSERT_EQ(call.PhaseOne(true), 0);
  call.Run();
  HostTensor<float> grad({kT, kN, kN}, ACL_FLOAT), grad_x({kT, kN, kN}, ACL_FLOAT);
  for (std::size_t k = 0; k < grad.data.size(); ++k) {
    grad.data[k] = static_cast<float>(k * 7 % 11) * 0.25f - 1;
  }
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnMhcSinkhornBackwardGetWorkspaceSize(grad.tensor, call.norm.tensor, call.sum.tensor,
                                                     grad_x.tensor, &size, &executor),
            0)
      << aclGetRecentErrMsg();
  void* workspace = nullptr;
  if (size > 0) {
    ASSERT_EQ(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  }
  ASSERT_EQ(aclnnMhcSinkhornBackward(workspace, size, executor, nullptr), 0);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  if (workspace != nullptr) {
    EXPECT_EQ(aclrtFree(workspace), 0);
  }
  for (std::size_t k = 0; k < 16; ++k) {
    double side[2] = {};
    for (int s = 0; s < 2; ++s) {
      Sinkhorn moved(5);
      moved.x.data[k] += s == 0 ? 0.01f : -0.01f;
      ASSERT_EQ(moved.PhaseOne(false), 0);
      moved.Run();
      for (std::size_t e = 0; e < 16; ++e) {
        side[s] += static_cast<double>(moved.out.data[e]) * grad.data[e];
      }
    }
    EXPECT_NEAR(grad_x.data[k], (side[0] - side[1]) / 0.02, 2e-4) << k;
  }
}

TEST_F(AclnnMhcSinkhorn, RefusesWithAMessage) {
  Sinkhorn call(3);
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  const auto forward = [&](std::int64_t iters, float eps, aclTensor* norm, aclTensor* sum) {
    return aclnnMhcSinkhornGetWorkspaceSize(call.x.tensor, eps, iters, call.out.tensor, norm, sum,
                                            &size, &executor);
  };
  ExpectFailure(forward(0, 1e-6f, nullptr, nullptr), 161002, {"numIters"});
  ExpectFailure(forward(3, -1.0f, nullptr, nullptr), 161002, {"eps"});
  ExpectFailure(forward(3, NAN, nullptr, nullptr), 161002, {"eps"});
  ExpectFailure(forward(3, 1e-6f, call.norm.tensor, nullptr), 161002, {"sumOut", "both"});
  ExpectFailure(forward(2, 1e-6f, call.norm.tensor, call.sum.tensor), 161002, {"normOut"});
  HostTensor<float> odd({kT * kN * kPadded}, ACL_FLOAT);
  ExpectFailure(aclnnMhcSinkhornBackwardGetWorkspaceSize(call.x.tensor, odd.tensor, call.sum.tensor,
                                                         call.out.tensor, &size, &executor),
                161002, {"normOut"});
  Sinkhorn many(101);
  ExpectFailure(
      aclnnMhcSinkhornBackwardGetWorkspaceSize(call.x.tensor, many.norm.tensor, many.sum.tensor,
                                               call.out.tensor, &size, &executor),
      161002, {"1..100"});
}

aclnnStatus ProfilePhaseOne(std::int64_t n, std::int64_t iters) {
  HostTensor<float> x({1, 1, n, n}, ACL_FLOAT), out({1, 1, n, n}, ACL_FLOAT);
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  const aclnnStatus status = aclnnMhcSinkhornGetWorkspaceSize(x.tensor, 1e-6f, iters, out.tensor,
                                                              nullptr, nullptr, &size, &executor);
  if (status == 0) aclDestroyAclOpExecutor(executor);
  return status;
}

// Sizes whose products overflow on the way to being refused.
TEST_F(AclnnMhcSinkhorn, HugeSizesAreRefused) {
  Sinkhorn s(1);
  for (std::int64_t iters :
       {std::int64_t{-1}, INT64_MAX, std::int64_t{1} << 31, std::int64_t{1} << 40}) {
    s.iters = iters;
    ExpectFailure(s.PhaseOne(true), 161002, {"aclnnMhcSinkhornGetWorkspaceSize", "expected"});
  }
  const auto empty = [&](std::vector<std::int64_t> sizes) {
    return aclCreateTensor(sizes.data(), sizes.size(), ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND,
                           sizes.data(), sizes.size(), nullptr);
  };
  // No elements, and an n whose square and next multiple of eight do not fit.
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{0, 1, INT64_MAX}, std::vector<std::int64_t>{0, 1, 1LL << 40},
        std::vector<std::int64_t>{0, 1LL << 60, 4}}) {
    aclTensor* x = empty(sizes);
    ASSERT_NE(x, nullptr) << aclGetRecentErrMsg();
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    ExpectFailure(aclnnMhcSinkhornGetWorkspaceSize(x, 1e-6f, 20, x, s.norm.tensor, s.sum.tensor,
                                                   &size, &executor),
                  161002, {"expected"});
    ExpectFailure(aclnnMhcSinkhornBackwardGetWorkspaceSize(x, s.norm.tensor, s.sum.tensor, x, &size,
                                                           &executor),
                  161002, {"expected"});
    aclDestroyTensor(x);
  }
}

TEST_F(AclnnMhcSinkhorn, Profiles) {
  EXPECT_EQ(ProfilePhaseOne(5, 101), 0);
  for (const char* name : {"a2", "a3"}) {
    const Soc soc(name);
    ExpectFailure(ProfilePhaseOne(4, 20), 361001, {"does not exist", name});
  }
  const Soc soc("950");
  for (std::int64_t n : {4, 6, 8}) EXPECT_EQ(ProfilePhaseOne(n, 100), 0);
  EXPECT_EQ(ProfilePhaseOne(4, 1), 0);
  for (std::int64_t n : {3, 5, 7, 9}) ExpectFailure(ProfilePhaseOne(n, 20), 161002, {"4, 6 or 8"});
  ExpectFailure(ProfilePhaseOne(4, 101), 161002, {"iterations is 101"});
}

TEST_F(AclnnMhcSinkhorn, PermutationForwardAndBackward) {
  HostTensor<float> logits({kT, 6}, ACL_FLOAT), h_res({kT, 3, 3}, ACL_FLOAT);
  HostTensor<float> grad({kT, 3, 3}, ACL_FLOAT), grad_logits({kT, 6}, ACL_FLOAT, -3.0f);
  for (std::size_t k = 0; k < logits.data.size(); ++k) {
    logits.data[k] = static_cast<float>(k % 5) * 0.5f;
  }
  for (std::size_t k = 0; k < grad.data.size(); ++k) grad.data[k] = static_cast<float>(k % 3);
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnMhcPermutationGetWorkspaceSize(logits.tensor, h_res.tensor, &size, &executor), 0)
      << aclGetRecentErrMsg();
  ASSERT_EQ(aclnnMhcPermutation(nullptr, size, executor, nullptr), 0);
  ASSERT_EQ(aclnnMhcPermutationBackwardGetWorkspaceSize(grad.tensor, logits.tensor,
                                                        grad_logits.tensor, &size, &executor),
            0);
  ASSERT_EQ(aclnnMhcPermutationBackward(nullptr, size, executor, nullptr), 0);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  int perm[3] = {0, 1, 2};
  double total = 0, weighted = 0, p[6], score[6], want[9] = {};
  for (std::size_t r = 0; r < 6; ++r, std::next_permutation(perm, perm + 3)) {
    p[r] = std::exp(static_cast<double>(logits.data[r]));
    score[r] = 0;
    total += p[r];
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t at = i * 3 + static_cast<std::size_t>(perm[i]);
      want[at] += p[r];
      score[r] += grad.data[at];
    }
    weighted += p[r] * score[r];
  }
  for (std::size_t k = 0; k < 9; ++k) EXPECT_NEAR(h_res.data[k], want[k] / total, 1e-6);
  for (std::size_t r = 0; r < 6; ++r) {
    EXPECT_NEAR(grad_logits.data[r], p[r] / total * (score[r] - weighted / total), 1e-6);
  }
  HostTensor<float> five({kT, 5}, ACL_FLOAT);
  ExpectFailure(aclnnMhcPermutationGetWorkspaceSize(five.tensor, h_res.tensor, &size, &executor),
                161002, {"logits"});
  ExpectFailure(aclnnMhcPermutationGetWorkspaceSize(nullptr, h_res.tensor, &size, &executor),
                161001, {"logits is null"});
}

}  // namespace
}  // namespace anabranch::acl_test
