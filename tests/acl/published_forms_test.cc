// The forms of calls that published documents and programs have, and what they rely on: caches with
// x's own leading dimensions, a backward without a residual part, caches equal to the last byte.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "aclnnop/aclnn_ops_transformer.h"
#include "tests/acl/fixture.h"

namespace anabranch::acl_test {
namespace {

using Sizes = std::vector<std::int64_t>;
using Tensor = HostTensor<float>;

class AclnnPublishedForms : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(aclrtSetDevice(0), 0); }
  void TearDown() override { ASSERT_EQ(aclrtResetDevice(0), 0); }

  template <class PhaseTwo>
  void Run(PhaseTwo phase_two) {
    void* workspace = nullptr;
    if (size > 0) {
      ASSERT_EQ(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    }
    ASSERT_EQ(phase_two(workspace, size, executor, nullptr), 0) << aclGetRecentErrMsg();
    ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0) << aclGetRecentErrMsg();
    if (workspace != nullptr) {
      EXPECT_EQ(aclrtFree(workspace), 0);
    }
  }

  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
};

void Fill(Tensor& t, int seed) {
  for (float& v : t.data) v = static_cast<float>(++seed * 37 % 101) * 0.02f - 1;
}

// --- aclnnMhcPreSinkhorn and its backward.

constexpr std::int64_t kB = 2, kS = 5, kN = 3, kD = 24, kF = kN * kN + 2 * kN, kIters = 4;

Sizes Join(const Sizes& a, const Sizes& b) {
  Sizes all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

// All tensors of a forward and its backward for tokens in those dimensions.
struct PreSinkhorn {
  PreSinkhorn(const Sizes& tokens, const Sizes& cache_tokens)
      : x(Join(tokens, {kN, kD}), ACL_FLOAT),
        phi({kF, kN * kD}, ACL_FLOAT),
        alpha({3}, ACL_FLOAT, 0.75f),
        bias({kF}, ACL_FLOAT),
        h_in(Join(tokens, {kD}), ACL_FLOAT),
        h_post(Join(tokens, {kN}), ACL_FLOAT),
        h_res(Join(tokens, {kN * kN}), ACL_FLOAT),
        h_pre(Join(tokens, {kN}), ACL_FLOAT),
        h_mix(Join(tokens, {kF}), ACL_FLOAT),
        inv_rms(Join(tokens, {1}), ACL_FLOAT),
        sums(Join(Join({2 * kIters}, cache_tokens), {kN}), ACL_FLOAT, NAN),
        norms(Join(Join({2 * kIters}, cache_tokens), {kN, kN}), ACL_FLOAT, NAN),
        grad_x(Join(tokens, {kN, kD}), ACL_FLOAT, NAN),
        grad_phi({kF, kN * kD}, ACL_FLOAT, NAN),
        grad_alpha({3}, ACL_FLOAT, NAN),
        grad_bias({kF}, ACL_FLOAT, NAN) {
    Fill(x, 1);
    Fill(phi, 2);
    Fill(bias, 3);
  }
  aclnnStatus Forward(std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnMhcPreSinkhornGetWorkspaceSize(
        x.tensor, phi.tensor, alpha.tensor, bias.tensor, kN, kIters, 1e-6, 1e-6, true, h_in.tensor,
        h_post.tensor, h_res.tensor, h_pre.tensor, h_mix.tensor, inv_rms.tensor, sums.tensor,
        norms.tensor, size, executor);
  }
  aclnnStatus Backward(std::uint64_t* size, aclOpExecutor** executor) {
    return aclnnMhcPreSinkhornBackwardGetWorkspaceSize(
        h_in.tensor, h_post.tensor, h_res.tensor, x.tensor, phi.tensor, alpha.tensor, bias.tensor,
        h_pre.tensor, h_mix.tensor, inv_rms.tensor, sums.tensor, norms.tensor, 1e-6, grad_x.tensor,
        grad_phi.tensor, grad_alpha.tensor, grad_bias.tensor, size, executor);
  }
  std::vector<const std::vector<float>*> Results() const {
    return {&h_in.data,   &h_post.data,   &h_res.data,      &h_pre.data,
            &h_mix.data,  &inv_rms.data,  &sums.data,       &norms.data,
            &grad_x.data, &grad_phi.data, &grad_alpha.data, &grad_bias.data};
  }
  Tensor x, phi, alpha, bias, h_in, h_post, h_res, h_pre, h_mix, inv_rms, sums, norms;
  Tensor grad_x, grad_phi, grad_alpha, grad_bias;
};

TEST_F(AclnnPublishedForms, CachesHaveTheLeadingDimensionsOfX) {
  PreSinkhorn bsnd({kB, kS}, {kB, kS}), tnd({kB * kS}, {kB * kS});
  for (PreSinkhorn* call : {&bsnd, &tnd}) {
    ASSERT_EQ(call->Forward(&size, &executor), 0) << aclGetRecentErrMsg();
    Run(&aclnnMhcPreSinkhorn);
    ASSERT_EQ(call->Backward(&size, &executor), 0) << aclGetRecentErrMsg();
    Run(&aclnnMhcPreSinkhornBackward);
  }
  const auto a = bsnd.Results(), b = tnd.Results();
  for (std::size_t k = 0; k < a.size(); ++k) {
    for (float v : *a[k]) ASSERT_TRUE(std::isfinite(v)) << k;
    EXPECT_EQ(*a[k], *b[k]) << k;  // the same numbers in the same order
  }
  // The last normalisation of each column, and the result itself.
  const std::size_t last = bsnd.norms.data.size() - bsnd.h_res.data.size();
  EXPECT_EQ(std::vector<float>(bsnd.norms.data.begin() + static_cast<std::ptrdiff_t>(last),
                               bsnd.norms.data.end()),
            bsnd.h_res.data);
}

TEST_F(AclnnPublishedForms, FlattenedCachesOfBatchesAreRefused) {
  PreSinkhorn flat({kB, kS}, {kB * kS});
  const std::string flat_has = "sumOut has shape (8, 10, 3), expected ";
  ExpectFailure(flat.Forward(&size, &executor), 161002, {flat_has + "(8, 2, 5, 3)"});
  // The backward learns the number of steps from sumOut.
  ExpectFailure(flat.Backward(&size, &executor), 161002, {flat_has + "(?, 2, 5, 3)"});
  PreSinkhorn split({kB * kS}, {kB, kS});
  const std::string split_has = "sumOut has shape (8, 2, 5, 3), expected ";
  ExpectFailure(split.Forward(&size, &executor), 161002, {split_has + "(8, 10, 3)"});
  ExpectFailure(split.Backward(&size, &executor), 161002, {split_has + "(?, 10, 3)"});
}

// --- aclnnMhcPreBackward and V2 with two alphas.

// A backward with `rows` of phi, `alphas` and, unless null, the gradient of hRes.
struct PreBackward {
  PreBackward(std::int64_t rows, std::int64_t alphas, std::int64_t t)
      : x({t, kN, kD}, ACL_FLOAT),
        phi({rows, kN * kD}, ACL_FLOAT),
        alpha({alphas}, ACL_FLOAT, 0.75f),
        gamma({kN, kD}, ACL_FLOAT),
        grad_h_in({t, kD}, ACL_FLOAT),
        grad_h_post({t, kN}, ACL_FLOAT),
        grad_h_res({t, kN, kN}, ACL_FLOAT, 0.0f),
        inv_rms({t}, ACL_FLOAT, 1.25f),
        h_mix({t, rows}, ACL_FLOAT),
        h_pre({t, kN}, ACL_FLOAT, 0.5f),
        h_post({t, kN}, ACL_FLOAT, 0.75f),
        grad_x({t, kN, kD}, ACL_FLOAT, NAN),
        grad_phi({rows, kN * kD}, ACL_FLOAT, NAN),
        grad_alpha({alphas}, ACL_FLOAT, NAN),
        grad_bias({rows}, ACL_FLOAT, NAN),
        grad_gamma({kN, kD}, ACL_FLOAT, NAN) {
    Fill(x, 1);
    Fill(phi, 2);
    Fill(gamma, 4);
    Fill(grad_h_in, 5);
    Fill(grad_h_post, 6);
    for (std::size_t k = 0; k < h_mix.data.size(); ++k) {
      const auto row = k % static_cast<std::size_t>(rows);
      h_mix.data[k] = static_cast<float>(k / static_cast<std::size_t>(rows) + row) * 0.125f;
    }
  }
  aclnnStatus PhaseOne(bool v2, bool residual, std::uint64_t* size, aclOpExecutor** executor) {
    const aclTensor* res = residual ? grad_h_res.tensor : nullptr;
    return v2 ? aclnnMhcPreBackwardV2GetWorkspaceSize(
                    x.tensor, phi.tensor, alpha.tensor, grad_h_in.tensor, grad_h_post.tensor, res,
                    inv_rms.tensor, h_mix.tensor, h_pre.tensor, h_post.tensor, gamma.tensor,
                    nullptr, 1e-6f, 0, grad_x.tensor, grad_phi.tensor, grad_alpha.tensor,
                    grad_bias.tensor, grad_gamma.tensor, size, executor)
              : aclnnMhcPreBackwardGetWorkspaceSize(
                    x.tensor, phi.tensor, alpha.tensor, grad_h_in.tensor, grad_h_post.tensor, res,
                    inv_rms.tensor, h_mix.tensor, h_pre.tensor, h_post.tensor, gamma.tensor,
                    nullptr, 1e-6f, grad_x.tensor, grad_phi.tensor, grad_alpha.tensor,
                    grad_bias.tensor, grad_gamma.tensor, size, executor);
  }
  Tensor x, phi, alpha, gamma, grad_h_in, grad_h_post, grad_h_res, inv_rms, h_mix, h_pre, h_post;
  Tensor grad_x, grad_phi, grad_alpha, grad_bias, grad_gamma;
};

void ExpectNear(const std::vector<float>& have, const std::vector<float>& want, const char* name) {
  ASSERT_LE(have.size(), want.size());
  for (std::size_t k = 0; k < have.size(); ++k) {
    ASSERT_NEAR(have[k], want[k], 1e-5 * (1 + std::fabs(want[k]))) << name << "[" << k << "]";
  }
}

// Without a residual part the gradients are those of one that no gradient comes back to.
TEST_F(AclnnPublishedForms, BackwardWithoutResidualPart) {
  constexpr std::int64_t kT = 7;
  for (bool v2 : {false, true}) {
    PreBackward none(2 * kN, 2, kT), zero(kF, 3, kT);
    ASSERT_EQ(none.PhaseOne(v2, false, &size, &executor), 0) << aclGetRecentErrMsg();
    Run(v2 ? &aclnnMhcPreBackwardV2 : &aclnnMhcPreBackward);
    ASSERT_EQ(zero.PhaseOne(v2, true, &size, &executor), 0) << aclGetRecentErrMsg();
    Run(v2 ? &aclnnMhcPreBackwardV2 : &aclnnMhcPreBackward);
    ExpectNear(none.grad_x.data, zero.grad_x.data, "gradX");
    ExpectNear(none.grad_phi.data, zero.grad_phi.data, "gradPhi");
    ExpectNear(none.grad_alpha.data, zero.grad_alpha.data, "gradAlpha");
    ExpectNear(none.grad_bias.data, zero.grad_bias.data, "gradBias");
    ExpectNear(none.grad_gamma.data, zero.grad_gamma.data, "gradGamma");
    float most = 0;
    for (float v : none.grad_phi.data) most = std::max(most, std::fabs(v));
    EXPECT_GT(most, 0.01f);
  }
}

TEST_F(AclnnPublishedForms, BackwardWithoutResidualPartOfNoTokens) {
  for (bool v2 : {false, true}) {
    PreBackward none(2 * kN, 2, 0);
    ASSERT_EQ(none.PhaseOne(v2, false, &size, &executor), 0) << aclGetRecentErrMsg();
    Run(v2 ? &aclnnMhcPreBackwardV2 : &aclnnMhcPreBackward);
    for (const Tensor* t : {&none.grad_phi, &none.grad_alpha, &none.grad_bias}) {
      for (float v : t->data) EXPECT_EQ(v, 0.0f);
    }
  }
}

TEST_F(AclnnPublishedForms, NumberOfAlphasSaysWhetherThereIsAResidualPart) {
  for (bool v2 : {false, true}) {
    PreBackward three(kF, 3, 2), two(2 * kN, 2, 2), rows(kF, 2, 2);
    ExpectFailure(three.PhaseOne(v2, false, &size, &executor), 161001, {"gradHRes is absent"});
    ExpectFailure(two.PhaseOne(v2, true, &size, &executor), 161002,
                  {"gradHRes has shape (2, 3, 3), expected none"});
    ExpectFailure(rows.PhaseOne(v2, false, &size, &executor), 161002,
                  {"phi has shape (15, 72), expected (6, 72)"});
  }
  // The form is part of every profile that has the call.
  for (const char* name : {"a2", "950"}) {
    const Soc soc(name);
    const Sizes x_sizes{1, 2, 4, 128}, in_sizes{1, 2, 128};
    HostTensor<std::uint16_t> x(x_sizes, ACL_BF16), grad_h_in(in_sizes, ACL_BF16),
        grad_x(x_sizes, ACL_BF16);
    Tensor phi({8, 512}, ACL_FLOAT), alpha({2}, ACL_FLOAT), per_stream({1, 2, 4}, ACL_FLOAT);
    Tensor inv_rms({1, 2}, ACL_FLOAT), h_mix({1, 2, 8}, ACL_FLOAT), bias({8}, ACL_FLOAT);
    EXPECT_EQ(
        aclnnMhcPreBackwardGetWorkspaceSize(
            x.tensor, phi.tensor, alpha.tensor, grad_h_in.tensor, per_stream.tensor, nullptr,
            inv_rms.tensor, h_mix.tensor, per_stream.tensor, per_stream.tensor, nullptr, nullptr,
            1e-6f, grad_x.tensor, phi.tensor, alpha.tensor, bias.tensor, nullptr, &size, &executor),
        0)
        << name << ": " << aclGetRecentErrMsg();
    aclDestroyAclOpExecutor(executor);
  }
}

// --- aclnnMhcSinkhorn's flat caches.

struct FlatCaches {
  // Values in front of and behind the caches, which no call may touch.
  static constexpr std::size_t kGuard = 16;
  std::vector<float> norm, sum;
};

// `before`: what every byte of the caches was.
FlatCaches FlatCachesOf(const Sizes& tokens, std::int64_t n, std::int64_t iters, int before) {
  std::int64_t t = 1;
  for (std::int64_t size : tokens) t *= size;
  const std::int64_t m = (n + 7) / 8 * 8;
  FlatCaches caches;
  const auto make = [before](std::vector<float>* memory, std::int64_t count) {
    memory->resize(static_cast<std::size_t>(count) + 2 * FlatCaches::kGuard);
    std::memset(memory->data(), before, memory->size() * sizeof(float));
    return aclCreateTensor(&count, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &count, 1,
                           memory->data() + FlatCaches::kGuard);
  };
  aclTensor* norm = make(&caches.norm, 2 * iters * t * n * m);
  aclTensor* sum = make(&caches.sum, 2 * iters * t * m);
  Tensor x(Join(tokens, {n, n}), ACL_FLOAT), out(Join(tokens, {n, n}), ACL_FLOAT);
  Fill(x, 9);
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(aclnnMhcSinkhornGetWorkspaceSize(x.tensor, 1e-6f, iters, out.tensor, norm, sum, &size,
                                             &executor),
            0)
      << aclGetRecentErrMsg();
  void* workspace = nullptr;
  EXPECT_EQ(aclrtMalloc(&workspace, size + 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  EXPECT_EQ(aclnnMhcSinkhorn(workspace, size, executor, nullptr), 0) << aclGetRecentErrMsg();
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0) << aclGetRecentErrMsg();
  EXPECT_EQ(aclrtFree(workspace), 0);
  aclDestroyTensor(norm);
  aclDestroyTensor(sum);
  return caches;
}

void ExpectGuards(const std::vector<float>& memory, int before) {
  float untouched;
  std::memset(&untouched, before, sizeof(untouched));
  for (std::size_t k = 0; k < FlatCaches::kGuard; ++k) {
    ASSERT_EQ(std::memcmp(&memory[k], &untouched, 4), 0) << "in front";
    ASSERT_EQ(std::memcmp(&memory[memory.size() - 1 - k], &untouched, 4), 0) << "behind";
  }
}

bool SameBytes(const std::vector<float>& a, const std::vector<float>& b) {
  const std::size_t inner = a.size() - 2 * FlatCaches::kGuard;
  return a.size() == b.size() &&
         std::memcmp(a.data() + FlatCaches::kGuard, b.data() + FlatCaches::kGuard, inner * 4) == 0;
}

TEST_F(AclnnPublishedForms, EqualCallsLeaveEqualFlatCaches) {
  for (std::int64_t n = 1; n <= 16; ++n) {
    for (const Sizes& tokens : {Sizes{1}, Sizes{34}, Sizes{0}}) {
      const FlatCaches first = FlatCachesOf(tokens, n, 3, 0xff);
      const FlatCaches second = FlatCachesOf(tokens, n, 3, 0x5a);
      const Sizes batches = tokens[0] == 34 ? Sizes{2, 17} : Sizes{1, tokens[0]};
      const FlatCaches third = FlatCachesOf(batches, n, 3, 0xc3);
      for (const FlatCaches* other : {&second, &third}) {
        EXPECT_TRUE(SameBytes(first.norm, other->norm)) << n;
        EXPECT_TRUE(SameBytes(first.sum, other->sum)) << n;
      }
      ExpectGuards(first.norm, 0xff);
      ExpectGuards(first.sum, 0xff);
      ExpectGuards(third.norm, 0xc3);
      const auto m = static_cast<std::size_t>((n + 7) / 8 * 8);
      for (const std::vector<float>* memory : {&first.norm, &first.sum}) {
        for (std::size_t k = 0; k + 2 * FlatCaches::kGuard < memory->size(); ++k) {
          const float value = (*memory)[FlatCaches::kGuard + k];
          const bool padding = k % m >= static_cast<std::size_t>(n);
          ASSERT_TRUE(padding ? value == 0 && !std::signbit(value) : value > 0) << n << " " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace anabranch::acl_test
