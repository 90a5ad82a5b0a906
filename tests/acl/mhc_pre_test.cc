// aclnnMhcPre, aclnnMhcPreV2, aclnnMhcPreSinkhorn, aclnnMhcHead and their backwards: both phases,
// and each limit of each profile, one just inside and one just outside.
#include <gtest/gtest.h>

#include <cmath>

#include "aclnnop/aclnn_mhc_head.h"
#include "aclnnop/aclnn_mhc_head_backward.h"
#include "aclnnop/aclnn_mhc_pre.h"
#include "aclnnop/aclnn_mhc_pre_backward.h"
#include "aclnnop/aclnn_mhc_pre_backward_v2.h"
#include "aclnnop/aclnn_mhc_pre_sinkhorn.h"
#include "aclnnop/aclnn_mhc_pre_sinkhorn_backward.h"
#include "aclnnop/aclnn_mhc_pre_v2.h"
#include "tests/acl/fixture.h"

namespace anabranch::acl_test {
namespace {

using Sizes = std::vector<std::int64_t>;
using Tensor = HostTensor<float>;

struct Shape {
  std::int64_t n = 4;
  std::int64_t d = 128;
  bool tnd = false;
  bool bf16 = true;
  bool permutation = false;
  std::int64_t iters = 20;
  std::int64_t t = 3;
};

std::int64_t Logits(const Shape& s) {
  std::int64_t factorial = 1;
  for (std::int64_t k = 2; k <= s.n; ++k) factorial *= k;
  return s.permutation ? factorial : s.n * s.n;
}

// All tensors of the family. In BF16 the buffers are twice as long as needed and stay zero.
struct Family {
  explicit Family(const Shape& shape)
      : s(shape),
        act(s.bf16 ? ACL_BF16 : ACL_FLOAT),
        rows(2 * s.n + Logits(s)),
        x(Tokens({s.n, s.d}), act),
        phi({rows, s.n * s.d}, ACL_FLOAT),
        alpha({3}, ACL_FLOAT, 1.0f),
        bias({rows}, ACL_FLOAT),
        h_in(Tokens({s.d}), act),
        h_post(Tokens({s.n}), ACL_FLOAT),
        h_res(Tokens(s.permutation ? Sizes{Logits(s)} : Sizes{s.n, s.n}), ACL_FLOAT),
        inv_rms(Tokens({}), ACL_FLOAT),
        h_mix(Tokens({rows}), ACL_FLOAT),
        h_pre(Tokens({s.n}), ACL_FLOAT),
        sum_out(Steps({s.n}), ACL_FLOAT),
        norm_out(Steps({s.n, s.n}), ACL_FLOAT),
        grad_x(Tokens({s.n, s.d}), act),
        grad_phi({rows, s.n * s.d}, ACL_FLOAT, 7.0f),
        grad_alpha({3}, ACL_FLOAT, 7.0f),
        grad_bias({rows}, ACL_FLOAT, 7.0f) {
    int k = 0;
    for (auto* values : {&phi.data, &bias.data}) {
      for (float& v : *values) v = static_cast<float>(++k % 17) * 0.02f - 0.15f;
    }
    for (float& v : x.data) v = s.bf16 ? 0.0f : static_cast<float>(++k % 13) * 0.25f - 1;
  }
  Sizes Tokens(Sizes inner) const {
    Sizes all = s.tnd ? Sizes{s.t} : Sizes{1, s.t};
    all.insert(all.end(), inner.begin(), inner.end());
    return all;
  }
  // As published: (2*numIters, B, S, ...) or (2*numIters, T, ...).
  Sizes Steps(const Sizes& inner) const {
    Sizes all = Tokens(inner);
    all.insert(all.begin(), 2 * s.iters);
    return all;
  }
  aclnnStatus Pre(bool v2 = false, std::int64_t mode = 0, bool with_h_mix = true) {
    aclTensor* mix = with_h_mix ? h_mix.tensor : nullptr;
    return v2 ? aclnnMhcPreV2GetWorkspaceSize(x.tensor, phi.tensor, alpha.tensor, bias.tensor,
                                              nullptr, 1e-6, 1e-6, mode, h_in.tensor, h_post.tensor,
                                              h_res.tensor, inv_rms.tensor, mix, h_pre.tensor,
                                              &size, &executor)
              : aclnnMhcPreGetWorkspaceSize(x.tensor, phi.tensor, alpha.tensor, bias.tensor,
                                            nullptr, 1e-6, 1e-6, h_in.tensor, h_post.tensor,
                                            h_res.tensor, inv_rms.tensor, mix, h_pre.tensor, &size,
                                            &executor);
  }
  aclnnStatus PreBackward(bool v2 = false) {
    return v2 ? aclnnMhcPreBackwardV2GetWorkspaceSize(
                    x.tensor, phi.tensor, alpha.tensor, h_in.tensor, h_post.tensor, h_res.tensor,
                    inv_rms.tensor, h_mix.tensor, h_pre.tensor, h_post.tensor, nullptr, nullptr,
                    1e-6f, 1, grad_x.tensor, grad_phi.tensor, grad_alpha.tensor, grad_bias.tensor,
                    nullptr, &size, &executor)
              : aclnnMhcPreBackwardGetWorkspaceSize(
                    x.tensor, phi.tensor, alpha.tensor, h_in.tensor, h_post.tensor, h_res.tensor,
                    inv_rms.tensor, h_mix.tensor, h_pre.tensor, h_post.tensor, nullptr, nullptr,
                    1e-6f, grad_x.tensor, grad_phi.tensor, grad_alpha.tensor, grad_bias.tensor,
                    nullptr, &size, &executor);
  }
  aclnnStatus Sinkhorn(bool need_backward = true, std::int64_t mult = 0) {
    return aclnnMhcPreSinkhornGetWorkspaceSize(
        x.tensor, phi.tensor, alpha.tensor, bias.tensor, mult == 0 ? s.n : mult, s.iters, 1e-6,
        1e-6, need_backward, h_in.tensor, h_post.tensor, h_res.tensor,
        need_backward ? h_pre.tensor : nullptr, need_backward ? h_mix.tensor : nullptr,
        need_backward ? inv_rms.tensor : nullptr, need_backward ? sum_out.tensor : nullptr,
        need_backward ? norm_out.tensor : nullptr, &size, &executor);
  }
  aclnnStatus SinkhornBackward(bool caches = true) {
    return aclnnMhcPreSinkhornBackwardGetWorkspaceSize(
        h_in.tensor, h_post.tensor, h_res.tensor, x.tensor, phi.tensor, alpha.tensor, bias.tensor,
        h_pre.tensor, h_mix.tensor, inv_rms.tensor, caches ? sum_out.tensor : nullptr,
        norm_out.tensor, 1e-6, grad_x.tensor, grad_phi.tensor, grad_alpha.tensor, grad_bias.tensor,
        &size, &executor);
  }
  template <class PhaseTwo>
  aclnnStatus Run(PhaseTwo phase_two) {
    std::vector<std::byte> memory(size + 64);
    auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    void* workspace = reinterpret_cast<void*>((address + 63) / 64 * 64);
    const aclnnStatus status = phase_two(workspace, size, executor, nullptr);
    return status != 0 ? status : aclrtSynchronizeStream(nullptr);
  }

  Shape s;
  aclDataType act;
  std::int64_t rows;
  Tensor x, phi, alpha, bias, h_in, h_post, h_res, inv_rms, h_mix, h_pre, sum_out, norm_out;
  Tensor grad_x, grad_phi, grad_alpha, grad_bias;
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
};

enum Call { kPre, kPreBackward, kV2, kV2Backward, kSinkhorn, kSinkhornBackward };

// Phase 1 alone.
aclnnStatus Check(Call which, const Shape& shape) {
  Family call(shape);
  aclnnStatus status = 0;
  if (which == kPre || which == kV2) status = call.Pre(which == kV2);
  if (which == kPreBackward || which == kV2Backward)
    status = call.PreBackward(which == kV2Backward);
  if (which == kSinkhorn) status = call.Sinkhorn();
  if (which == kSinkhornBackward) status = call.SinkhornBackward();
  if (status == 0) aclDestroyAclOpExecutor(call.executor);
  return status;
}

class AclnnMhcPre : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(aclrtSetDevice(0), 0); }
  void TearDown() override { ASSERT_EQ(aclrtResetDevice(0), 0); }
};

const Shape kSmall = {.d = 37, .tnd = true, .bf16 = false};

TEST_F(AclnnMhcPre, ForwardAgreesWithADoubleLoop) {
  for (bool v2 : {false, true}) {
    Family c(kSmall);
    ASSERT_EQ(c.Pre(v2, 1), 0) << aclGetRecentErrMsg();
    ASSERT_EQ(c.Run(v2 ? aclnnMhcPreV2 : aclnnMhcPre), 0);
    const std::size_t k_all = 4 * 37;
    for (std::size_t t = 0; t < 3; ++t) {
      double squares = 0;
      for (std::size_t k = 0; k < k_all; ++k) squares += std::pow(c.x.data[t * k_all + k], 2);
      const double r = 1 / std::sqrt(squares / static_cast<double>(k_all) + 1e-6);
      EXPECT_NEAR(c.inv_rms.data[t], r, 1e-5);
      for (std::size_t f = 0; f < 24; ++f) {
        double mix = 0;
        for (std::size_t k = 0; k < k_all; ++k) {
          mix += static_cast<double>(c.phi.data[f * k_all + k]) * c.x.data[t * k_all + k];
        }
        EXPECT_NEAR(c.h_mix.data[t * 24 + f], mix, 1e-4);
        const double z = mix * r + c.bias.data[f];
        const double sigmoid = 1 / (1 + std::exp(-z));
        if (f < 4) {
          EXPECT_NEAR(c.h_pre.data[t * 4 + f], sigmoid + 1e-6, 1e-5);
        }
        if (f >= 4 && f < 8) {
          EXPECT_NEAR(c.h_post.data[t * 4 + f - 4], 2 * sigmoid, 1e-5);
        }
        if (f >= 8) {
          EXPECT_NEAR(c.h_res.data[t * 16 + f - 8], z, 1e-4);
        }
      }
    }
  }
}

// bias moves z one to one: its gradient and the forward's difference must agree.
TEST_F(AclnnMhcPre, BackwardsRunAndOverwriteTheirOutputs) {
  Family c(kSmall);
  ASSERT_EQ(c.Pre(), 0);
  ASSERT_EQ(c.Run(aclnnMhcPre), 0);
  for (bool v2 : {false, true}) {
    ASSERT_EQ(c.PreBackward(v2), 0) << aclGetRecentErrMsg();
    ASSERT_EQ(c.Run(v2 ? aclnnMhcPreBackwardV2 : aclnnMhcPreBackward), 0);
    for (std::size_t f = 8; f < 24; ++f) {  // the gradient of z_res is gradHRes itself
      float want = 0;
      for (std::size_t t = 0; t < 3; ++t) want += c.h_res.data[t * 16 + f - 8];
      EXPECT_NEAR(c.grad_bias.data[f], want, 1e-4);
    }
    for (float v : c.grad_phi.data) ASSERT_NE(v, 7.0f);
  }
  ASSERT_EQ(c.Sinkhorn(), 0) << aclGetRecentErrMsg();
  ASSERT_EQ(c.Run(aclnnMhcPreSinkhorn), 0);
  for (std::size_t t = 0; t < 3; ++t) {
    for (std::size_t j = 0; j < 4; ++j) {
      float column = 0;
      for (std::size_t i = 0; i < 4; ++i) column += c.h_res.data[t * 16 + i * 4 + j];
      EXPECT_NEAR(column, 1, 1e-5);
    }
  }
  ASSERT_EQ(c.SinkhornBackward(), 0) << aclGetRecentErrMsg();
  ASSERT_EQ(c.Run(aclnnMhcPreSinkhornBackward), 0);
  for (float v : c.grad_bias.data) EXPECT_TRUE(std::isfinite(v) && v != 7.0f);
}

TEST_F(AclnnMhcPre, NoTokensZeroTheParameterGradients) {
  Shape none = kSmall;
  none.t = 0;
  Family c(none);
  ASSERT_EQ(c.Pre(), 0) << aclGetRecentErrMsg();
  EXPECT_EQ(c.size, 0u);
  ASSERT_EQ(c.Run(aclnnMhcPre), 0);
  ASSERT_EQ(c.PreBackward(), 0) << aclGetRecentErrMsg();
  EXPECT_EQ(c.size, 0u);
  ASSERT_EQ(c.Run(aclnnMhcPreBackward), 0);
  for (auto* values : {&c.grad_phi.data, &c.grad_alpha.data, &c.grad_bias.data}) {
    for (float v : *values) ASSERT_EQ(v, 0.0f);
  }
}

TEST_F(AclnnMhcPre, HeadForwardAndBackward) {
  Tensor x({3, 4, 9}, ACL_FLOAT, 0.5f), fn({4, 36}, ACL_FLOAT), base({4}, ACL_FLOAT);
  Tensor scale({1}, ACL_FLOAT, 1.0f), y({3, 9}, ACL_FLOAT), rms({3}, ACL_FLOAT);
  Tensor mix({3, 4}, ACL_FLOAT), w({3, 4}, ACL_FLOAT), grad_x({3, 4, 9}, ACL_FLOAT);
  Tensor grad_fn({4, 36}, ACL_FLOAT), grad_base({4}, ACL_FLOAT), grad_scale({1}, ACL_FLOAT, 7.0f);
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(
      aclnnMhcHeadGetWorkspaceSize(x.tensor, fn.tensor, base.tensor, scale.tensor, 1e-6, 0,
                                   y.tensor, rms.tensor, mix.tensor, w.tensor, &size, &executor),
      0)
      << aclGetRecentErrMsg();
  void* workspace = nullptr;
  ASSERT_EQ(aclrtMalloc(&workspace, 1 << 20, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  ASSERT_LE(size, 1u << 20);
  ASSERT_EQ(aclnnMhcHead(workspace, size, executor, nullptr), 0);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  for (float v : y.data) EXPECT_NEAR(v, 4 * 0.5 * 0.5, 1e-6);  // weights sigmoid(0)
  ASSERT_EQ(
      aclnnMhcHeadBackwardGetWorkspaceSize(y.tensor, x.tensor, fn.tensor, scale.tensor, rms.tensor,
                                           mix.tensor, w.tensor, 0, grad_x.tensor, grad_fn.tensor,
                                           grad_base.tensor, grad_scale.tensor, &size, &executor),
      0)
      << aclGetRecentErrMsg();
  ASSERT_LE(size, 1u << 20);
  ASSERT_EQ(aclnnMhcHeadBackward(workspace, size, executor, nullptr), 0);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  for (float v : grad_base.data) EXPECT_NEAR(v, 3 * 9 * 0.5 * 0.25, 1e-5);
  EXPECT_EQ(grad_scale.data[0], 0.0f);  // fn is zero
  EXPECT_EQ(aclrtFree(workspace), 0);
}

TEST_F(AclnnMhcPre, BadArgumentsHaveTheirCodes) {
  Family c(kSmall);
  ExpectFailure(c.Pre(false, 0, false), 161002, {"hMixOptional is absent"});
  ExpectFailure(c.Pre(true, 2), 161002, {"opImplMode is 2, expected 0..1"});
  ExpectFailure(c.Sinkhorn(true, 5), 161002, {"hcMult is 5, expected 4"});
  ExpectFailure(c.SinkhornBackward(false), 161001, {"sumOut is null"});
  c.s.iters = 0;
  ExpectFailure(c.Sinkhorn(false), 161002, {"numIters is 0"});
  Tensor two({2}, ACL_FLOAT);
  ExpectFailure(
      aclnnMhcPreGetWorkspaceSize(c.x.tensor, c.phi.tensor, two.tensor, c.bias.tensor, nullptr,
                                  1e-6, 1e-6, c.h_in.tensor, c.h_post.tensor, nullptr, nullptr,
                                  nullptr, nullptr, &c.size, &c.executor),
      161002, {"phi has shape (24, 148), expected (8, 148)"});
  ExpectFailure(
      aclnnMhcPreGetWorkspaceSize(c.x.tensor, c.phi.tensor, c.alpha.tensor, c.bias.tensor, nullptr,
                                  1e-6, 1e-6, c.h_in.tensor, c.h_post.tensor, nullptr, nullptr,
                                  nullptr, nullptr, &c.size, &c.executor),
      161001, {"hRes is absent"});
  ExpectFailure(
      aclnnMhcPreGetWorkspaceSize(c.x.tensor, nullptr, c.alpha.tensor, c.bias.tensor, nullptr, 1e-6,
                                  1e-6, c.h_in.tensor, c.h_post.tensor, c.h_res.tensor, nullptr,
                                  nullptr, nullptr, &c.size, &c.executor),
      161001, {"phi is null"});
}

// The square of a huge n, and its factorial, are never computed.
TEST_F(AclnnMhcPre, HugeStreamsAreRefused) {
  HostTensor<float> some({3}, ACL_FLOAT);
  for (std::int64_t n : {std::int64_t{1} << 40, std::int64_t{1} << 62, std::int64_t{30}}) {
    const std::int64_t x_sizes[] = {0, n, 1};
    const std::int64_t res_sizes[] = {0, 24};
    aclTensor* x =
        aclCreateTensor(x_sizes, 3, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, x_sizes, 3, nullptr);
    aclTensor* res =
        aclCreateTensor(res_sizes, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, res_sizes, 2, nullptr);
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    ExpectFailure(
        aclnnMhcPreGetWorkspaceSize(x, some.tensor, some.tensor, some.tensor, nullptr, 1e-6, 1e-6,
                                    x, x, res, nullptr, nullptr, nullptr, &size, &executor),
        161002, {"n (permutation form) is " + std::to_string(n)});
    aclDestroyTensor(x);
    aclDestroyTensor(res);
  }
}

TEST(MhcPreProfileTest, Native) {
  EXPECT_EQ(Check(kPre, {.n = 16, .d = 3, .bf16 = false}), 0) << aclGetRecentErrMsg();
  EXPECT_EQ(Check(kPre, {.n = 5, .d = 3, .permutation = true}), 0) << aclGetRecentErrMsg();
  EXPECT_EQ(Check(kSinkhorn, {.n = 3, .d = 3, .tnd = true, .iters = 7}), 0);
}

TEST(MhcPreProfileTest, PreOnA2AndA3) {
  for (const char* name : {"a2", "a3"}) {
    const Soc soc(name);
    for (Call call : {kPre, kPreBackward}) {
      EXPECT_EQ(Check(call, {}), 0) << aclGetRecentErrMsg();
      EXPECT_EQ(Check(call, {.tnd = true, .permutation = true}), 0) << aclGetRecentErrMsg();
      EXPECT_EQ(Check(call, {.d = 99968, .t = 1}), 0) << aclGetRecentErrMsg();
      ExpectFailure(Check(call, {.n = 3}), 161002, {"n is 3", name});
      ExpectFailure(Check(call, {.n = 6}), 161002, {"n is 6"});
      ExpectFailure(Check(call, {.d = 64}), 161002, {"D is 64", "multiple of 128"});
      ExpectFailure(Check(call, {.d = 100096, .t = 1}), 161002, {"D is 100096"});
      ExpectFailure(Check(call, {.bf16 = false}), 161002, {"FLOAT"});
    }
    ExpectFailure(Check(kV2, {}), 361001, {"does not exist", name});
    ExpectFailure(Check(kV2Backward, {}), 361001, {"does not exist", name});
  }
}

TEST(MhcPreProfileTest, PreOn950) {
  const Soc soc("950");
  for (Call call : {kPre, kPreBackward, kV2, kV2Backward}) {
    for (std::int64_t n : {4, 6, 8}) EXPECT_EQ(Check(call, {.n = n}), 0) << aclGetRecentErrMsg();
    for (std::int64_t n : {3, 5, 7, 9}) ExpectFailure(Check(call, {.n = n}), 161002, {"n is"});
    EXPECT_EQ(Check(call, {.d = 64, .tnd = true}), 0) << aclGetRecentErrMsg();
    EXPECT_EQ(Check(call, {.d = 16384, .t = 1}), 0) << aclGetRecentErrMsg();
    ExpectFailure(Check(call, {.d = 96}), 161002, {"D is 96", "multiple of 64"});
    ExpectFailure(Check(call, {.d = 16448, .t = 1}), 161002, {"D is 16448", "16384"});
    ExpectFailure(Check(call, {.permutation = true}), 161002, {"permutation"});
    ExpectFailure(Check(call, {.bf16 = false}), 161002, {"FLOAT"});
  }
}

TEST(MhcPreProfileTest, PreSinkhorn) {
  for (const char* name : {"a2", "a3"}) {
    const Soc soc(name);
    for (Call call : {kSinkhorn, kSinkhornBackward}) {
      EXPECT_EQ(Check(call, {}), 0) << aclGetRecentErrMsg();
      ExpectFailure(Check(call, {.tnd = true}), 161002, {"layout"});
      ExpectFailure(Check(call, {.iters = 19}), 161002, {"iterations is 19"});
      ExpectFailure(Check(call, {.iters = 21}), 161002, {"iterations is 21"});
      ExpectFailure(Check(call, {.n = 5}), 161002, {"n is 5"});
      ExpectFailure(Check(call, {.d = 127}), 161002, {"D is 127"});
    }
  }
  const Soc soc("950");
  for (Call call : {kSinkhorn, kSinkhornBackward}) {
    for (std::int64_t d : {4096, 7168}) {
      EXPECT_EQ(Check(call, {.d = d, .tnd = true, .t = 1}), 0) << aclGetRecentErrMsg();
      EXPECT_EQ(Check(call, {.d = d, .t = 1}), 0) << aclGetRecentErrMsg();
      ExpectFailure(Check(call, {.d = d + 1, .t = 1}), 161002, {"D is", "4096 or 7168"});
    }
    ExpectFailure(Check(call, {.n = 6, .d = 4096, .t = 1}), 161002, {"n is 6"});
    ExpectFailure(Check(call, {.d = 4096, .iters = 19, .t = 1}), 161002, {"iterations is 19"});
    ExpectFailure(Check(call, {.d = 4096, .iters = 21, .t = 1}), 161002, {"iterations is 21"});
  }
}

}  // namespace
}  // namespace anabranch::acl_test
