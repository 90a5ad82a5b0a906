#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

#include "aclnnop/aclnn_mhc_post.h"
#include "aclnnop/aclnn_mhc_post_backward.h"
#include "tests/acl/fixture.h"

namespace anabranch::acl_test {
namespace {

// One call on small FP32 tensors with simple values.
struct Post {
  explicit Post(std::int64_t tokens = 3, std::int64_t d = 5)
      : t(tokens),
        hidden(d),
        x({tokens, 4, d}, ACL_FLOAT),
        h_res({tokens, 4, 4}, ACL_FLOAT),
        h_out({tokens, d}, ACL_FLOAT),
        h_post({tokens, 4}, ACL_FLOAT),
        out({tokens, 4, d}, ACL_FLOAT, -9.0f) {
    int k = 0;
    for (auto* values : {&x.data, &h_res.data, &h_out.data, &h_post.data}) {
      for (float& v : *values) v = static_cast<float>(++k % 17) * 0.25f - 2;
    }
  }
  aclnnStatus PhaseOne(bool with_res = true) {
    return aclnnMhcPostGetWorkspaceSize(x.tensor, with_res ? h_res.tensor : nullptr, h_out.tensor,
                                        h_post.tensor, out.tensor, &workspace_size, &executor);
  }
  aclnnStatus PhaseTwo(aclrtStream stream = nullptr) {
    return aclnnMhcPost(nullptr, workspace_size, executor, stream);
  }
  void ExpectResult(bool with_res = true) const {
    for (std::int64_t token = 0; token < t; ++token) {
      for (std::int64_t i = 0; i < 4; ++i) {
        for (std::int64_t k = 0; k < hidden; ++k) {
          double want = At(h_post, token * 4 + i) * At(h_out, token * hidden + k);
          for (std::int64_t j = 0; j < 4; ++j) {
            const double weight = with_res ? At(h_res, token * 16 + j * 4 + i) : (i == j);
            want += weight * At(x, (token * 4 + j) * hidden + k);
          }
          EXPECT_NEAR(At(out, (token * 4 + i) * hidden + k), want, 1e-5);
        }
      }
    }
  }
  static double At(const HostTensor<float>& tensor, std::int64_t k) {
    return tensor.data[static_cast<std::size_t>(k)];
  }

  std::int64_t t, hidden;
  HostTensor<float> x, h_res, h_out, h_post, out;
  std::uint64_t workspace_size = 99;
  aclOpExecutor* executor = reinterpret_cast<aclOpExecutor*>(0xdeadbeef);  // as programs leave it
};

class AclnnMhcPost : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(aclrtSetDevice(0), 0); }
  void TearDown() override { ASSERT_EQ(aclrtResetDevice(0), 0); }
};

TEST_F(AclnnMhcPost, TwoPhases) {
  for (bool with_res : {true, false}) {
    Post call;
    ASSERT_EQ(call.PhaseOne(with_res), 0) << aclGetRecentErrMsg();
    EXPECT_EQ(call.workspace_size, 0u);
    ASSERT_EQ(call.PhaseTwo(), 0);
    ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
    call.ExpectResult(with_res);
  }
}

TEST_F(AclnnMhcPost, ExecutorsAreSingleUseUnlessMadeRepeatable) {
  Post call;
  ASSERT_EQ(call.PhaseOne(), 0);
  ASSERT_EQ(call.PhaseTwo(), 0);
  ExpectFailure(call.PhaseTwo(), 161002, {"aclnnMhcPost", "consumed"});
  EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), 0);  // harmless
  ExpectFailure(aclSetAclOpExecutorRepeatable(call.executor), 161002, {"consumed"});

  Post again;
  ASSERT_EQ(again.PhaseOne(), 0);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(again.executor), 0);
  ASSERT_EQ(again.PhaseTwo(), 0);
  ASSERT_EQ(again.PhaseTwo(), 0);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  again.ExpectResult();
  EXPECT_EQ(aclDestroyAclOpExecutor(again.executor), 0);
  ExpectFailure(again.PhaseTwo(), 161002, {"unknown or consumed"});
  ExpectFailure(aclDestroyAclOpExecutor(nullptr), 161001, {"null"});
}

TEST_F(AclnnMhcPost, WrongExecutorsAreFoundOut) {
  Post call;
  ASSERT_EQ(call.PhaseOne(), 0);
  ExpectFailure(aclnnMhcPostBackward(nullptr, 0, call.executor, nullptr), 161002,
                {"belongs to aclnnMhcPost"});
  ExpectFailure(aclnnMhcPost(nullptr, 0, nullptr, nullptr), 161001, {"executor is null"});
  ExpectFailure(aclnnMhcPost(nullptr, 0, reinterpret_cast<aclOpExecutor*>(call.x.tensor), nullptr),
                161002, {"unknown or consumed"});
  int stream = 0;
  ExpectFailure(call.PhaseTwo(&stream), 107017, {"no live stream"});
  ASSERT_EQ(call.PhaseTwo(), 0);  // still there after the refusals
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  std::thread([] {
    Post other;
    ASSERT_EQ(other.PhaseOne(), 0);
    ExpectFailure(other.PhaseTwo(), 107002, {"no context"});
    aclDestroyAclOpExecutor(other.executor);
  }).join();
}

TEST_F(AclnnMhcPost, TensorsMayBeDestroyedAfterPhaseTwo) {
  Post call(200, 300);
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), 0);
  ASSERT_EQ(call.PhaseOne(), 0);
  std::thread([&] { ASSERT_EQ(call.PhaseTwo(stream), 0); }).join();
  for (aclTensor** tensor : {&call.x.tensor, &call.h_res.tensor, &call.h_out.tensor,
                             &call.h_post.tensor, &call.out.tensor}) {
    EXPECT_EQ(aclDestroyTensor(*tensor), 0);
    *tensor = nullptr;
  }
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  call.ExpectResult();
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

// Behind a host function that waits for this thread: phase 2 can only return if it does not wait.
TEST_F(AclnnMhcPost, PhaseTwoDoesNotWaitForTheWork) {
  Post call(40, 512);
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), 0);
  std::promise<void> go;
  std::future<void> gone = go.get_future();
  const auto wait = [](void* data) { static_cast<std::future<void>*>(data)->wait(); };
  ASSERT_EQ(aclrtLaunchHostFunc(stream, wait, &gone), 0);
  ASSERT_EQ(call.PhaseOne(), 0);
  ASSERT_EQ(call.PhaseTwo(stream), 0);
  for (float v : call.out.data) ASSERT_EQ(v, -9.0f);  // nothing has run yet
  go.set_value();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  call.ExpectResult();
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

TEST_F(AclnnMhcPost, StreamsAreFirstInFirstOut) {
  // Each step reads what the step before wrote: out -> x of the next one.
  constexpr int kSteps = 50;
  std::vector<std::unique_ptr<HostTensor<float>>> steps;
  for (int k = 0; k <= kSteps; ++k) {
    steps.push_back(
        std::make_unique<HostTensor<float>>(std::vector<std::int64_t>{1, 4, 64}, ACL_FLOAT));
  }
  HostTensor<float> h_out({1, 64}, ACL_FLOAT, 1.0f);
  HostTensor<float> h_post({1, 4}, ACL_FLOAT, 1.0f);
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), 0);
  for (std::size_t k = 0; k < kSteps; ++k) {
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    ASSERT_EQ(aclnnMhcPostGetWorkspaceSize(steps[k]->tensor, nullptr, h_out.tensor, h_post.tensor,
                                           steps[k + 1]->tensor, &size, &executor),
              0);
    ASSERT_EQ(aclnnMhcPost(nullptr, size, executor, stream), 0);
  }
  ASSERT_EQ(aclrtDestroyStream(stream), 0);  // finishes what is queued
  for (float v : steps[kSteps]->data) ASSERT_EQ(v, static_cast<float>(kSteps));
}

TEST_F(AclnnMhcPost, ManyThreadsAndStreamsAtOnce) {
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([] {
      ASSERT_EQ(aclrtSetDevice(0), 0);
      aclrtStream stream = nullptr;
      ASSERT_EQ(aclrtCreateStream(&stream), 0);
      for (int r = 0; r < 20; ++r) {
        Post call(7, 33);
        ASSERT_EQ(call.PhaseOne(), 0);
        ASSERT_EQ(call.PhaseTwo(stream), 0);
        ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
        call.ExpectResult();
      }
      ASSERT_EQ(aclrtDestroyStream(stream), 0);
      ASSERT_EQ(aclrtResetDevice(0), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(AclnnMhcPost, EmptyTensorsSucceed) {
  Post call(0, 5);
  ASSERT_EQ(call.PhaseOne(), 0) << aclGetRecentErrMsg();
  EXPECT_EQ(call.workspace_size, 0u);
  ASSERT_EQ(call.PhaseTwo(), 0);
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
}

TEST_F(AclnnMhcPost, StridedTensorsWithOffsets) {
  Post call(2, 3);
  std::vector<float> wide(100, -5.0f);
  const std::int64_t sizes[] = {2, 4, 3};
  const std::int64_t strides[] = {1, 20, 4};  // tokens innermost, everything padded
  const std::int64_t storage[] = {100};
  aclTensor* out =
      aclCreateTensor(sizes, 3, ACL_FLOAT, strides, 7, ACL_FORMAT_ND, storage, 1, wide.data());
  ASSERT_NE(out, nullptr);
  ASSERT_EQ(
      aclnnMhcPostGetWorkspaceSize(call.x.tensor, call.h_res.tensor, call.h_out.tensor,
                                   call.h_post.tensor, out, &call.workspace_size, &call.executor),
      0);
  ASSERT_EQ(call.PhaseTwo(), 0);
  ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
  int written = 0;
  for (float v : wide) written += v != -5.0f ? 1 : 0;
  EXPECT_EQ(written, 24);
  for (std::size_t t = 0; t < 2; ++t) {
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t d = 0; d < 3; ++d) {
        call.out.data[(t * 4 + i) * 3 + d] = wide[7 + t + 20 * i + 4 * d];
      }
    }
  }
  call.ExpectResult();
  EXPECT_EQ(aclDestroyTensor(out), 0);
}

TEST_F(AclnnMhcPost, ChecksInOrderEachWithAMessage) {
  Post call;
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  const auto phase_one = [&](aclTensor* x, aclTensor* res, aclTensor* h_out, aclTensor* post,
                             aclTensor* out) {
    return aclnnMhcPostGetWorkspaceSize(x, res, h_out, post, out, &size, &executor);
  };
  aclTensor *x = call.x.tensor, *res = call.h_res.tensor, *h_out = call.h_out.tensor;
  aclTensor *post = call.h_post.tensor, *out = call.out.tensor;
  ExpectFailure(phase_one(nullptr, res, h_out, post, out), 161001, {"x is null"});
  ExpectFailure(phase_one(x, res, nullptr, post, out), 161001, {"hOut is null"});
  ExpectFailure(phase_one(x, res, h_out, nullptr, out), 161001, {"hPost is null"});
  ExpectFailure(phase_one(x, res, h_out, post, nullptr), 161001, {"out is null"});
  ExpectFailure(aclnnMhcPostGetWorkspaceSize(x, res, h_out, post, out, nullptr, &executor), 161001,
                {"workspaceSize"});
  ExpectFailure(aclnnMhcPostGetWorkspaceSize(x, res, h_out, post, out, &size, nullptr), 161001,
                {"executor"});
  HostTensor<std::int32_t> ints({3, 4, 5}, ACL_INT32);
  ExpectFailure(phase_one(ints.tensor, res, h_out, post, out), 161002, {"x has dtype INT32"});
  HostTensor<std::uint16_t> half({3, 5}, ACL_FLOAT16);
  ExpectFailure(phase_one(x, res, half.tensor, post, out), 161002, {"hOut has", "float16"});
  const std::int64_t sizes[] = {3, 4, 5};
  aclTensor* fractal = aclCreateTensor(sizes, 3, ACL_FLOAT, nullptr, 0, ACL_FORMAT_FRACTAL_NZ,
                                       sizes, 3, call.x.data.data());
  ExpectFailure(phase_one(fractal, res, h_out, post, out), 161002, {"x has format 29"});
  EXPECT_EQ(aclDestroyTensor(fractal), 0);
  HostTensor<float> flat({20}, ACL_FLOAT), five({1, 1, 3, 4, 5}, ACL_FLOAT);
  ExpectFailure(phase_one(flat.tensor, res, h_out, post, out), 161002, {"x has shape", "3 or 4"});
  ExpectFailure(phase_one(five.tensor, res, h_out, post, out), 161002, {"x has shape", "3 or 4"});
  HostTensor<float> wrong({3, 3}, ACL_FLOAT);
  ExpectFailure(phase_one(x, res, h_out, wrong.tensor, out), 161002,
                {"hPost has shape (3, 3), expected (3, 4)"});
  EXPECT_EQ(phase_one(x, res, h_out, post, x), 0);  // out may be exactly x
  aclDestroyAclOpExecutor(executor);
}

// Of several faults the first in order is reported: null, dtype, format, rank and shape, profile.
TEST_F(AclnnMhcPost, TheFirstFaultInOrderIsReported) {
  Post call;
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  const auto with = [&](aclDataType dtype, aclFormat format, std::int64_t rank, aclTensor* h_out) {
    const std::int64_t sizes[] = {3, 4, 5};
    aclTensor* x = aclCreateTensor(sizes, static_cast<std::uint64_t>(rank), dtype, nullptr, 0,
                                   format, sizes, 3, call.x.data.data());
    const aclnnStatus code = aclnnMhcPostGetWorkspaceSize(
        x, call.h_res.tensor, h_out, call.h_post.tensor, call.out.tensor, &size, &executor);
    EXPECT_EQ(aclDestroyTensor(x), 0);
    return code;
  };
  aclTensor* h_out = call.h_out.tensor;
  const Soc soc("a2");  // takes neither FP32 nor D = 5
  ExpectFailure(with(ACL_INT32, ACL_FORMAT_FRACTAL_NZ, 1, nullptr), 161001, {"hOut is null"});
  ExpectFailure(with(ACL_INT32, ACL_FORMAT_FRACTAL_NZ, 1, h_out), 161002, {"dtype INT32"});
  ExpectFailure(with(ACL_FLOAT, ACL_FORMAT_FRACTAL_NZ, 1, h_out), 161002, {"x has format 29"});
  ExpectFailure(with(ACL_FLOAT, ACL_FORMAT_ND, 1, h_out), 161002, {"x has shape (3,)"});
  ExpectFailure(with(ACL_FLOAT, ACL_FORMAT_ND, 3, h_out), 161002, {"a2"});
  Post empty(0, 5);  // the profile counts without tokens too
  ExpectFailure(empty.PhaseOne(), 161002, {"a2"});
}

TEST_F(AclnnMhcPost, PrivateFormatsAreRefusedAndAllOthersRead) {
  Post call;
  const std::int64_t sizes[] = {3, 4, 5};
  const auto with = [&](aclFormat format) {
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    aclTensor* x =
        aclCreateTensor(sizes, 3, ACL_FLOAT, nullptr, 0, format, sizes, 3, call.x.data.data());
    const aclnnStatus code =
        aclnnMhcPostGetWorkspaceSize(x, call.h_res.tensor, call.h_out.tensor, call.h_post.tensor,
                                     call.out.tensor, &size, &executor);
    if (code == 0) aclDestroyAclOpExecutor(executor);
    EXPECT_EQ(aclDestroyTensor(x), 0);
    return code;
  };
  for (const aclFormat format : {ACL_FORMAT_NC1HWC0, ACL_FORMAT_FRACTAL_Z, ACL_FORMAT_NC1HWC0_C04,
                                 ACL_FORMAT_FRACTAL_NZ, ACL_FORMAT_NDC1HWC0, ACL_FRACTAL_Z_3D}) {
    ExpectFailure(with(format), 161002, {"x has format " + std::to_string(format)});
  }
  for (const aclFormat format :
       {ACL_FORMAT_UNDEFINED, ACL_FORMAT_NCHW, ACL_FORMAT_NHWC, ACL_FORMAT_ND, ACL_FORMAT_HWCN,
        ACL_FORMAT_NDHWC, ACL_FORMAT_NCDHW, ACL_FORMAT_NC, ACL_FORMAT_NCL}) {
    EXPECT_EQ(with(format), 0) << format << " " << aclGetRecentErrMsg();
  }
}

TEST_F(AclnnMhcPost, BackwardAgreesWithADoubleLoop) {
  constexpr std::int64_t kT = 3, kD = 37;
  for (bool with_res : {true, false}) {
    Post call(kT, kD);
    HostTensor<float> g({1, kT, 4, kD}, ACL_FLOAT), x({1, kT, 4, kD}, ACL_FLOAT);
    HostTensor<float> res({1, kT, 4, 4}, ACL_FLOAT), h_out({1, kT, kD}, ACL_FLOAT);
    HostTensor<float> post({1, kT, 4}, ACL_FLOAT);
    HostTensor<float> grad_x({1, kT, 4, kD}, ACL_FLOAT), grad_res({1, kT, 4, 4}, ACL_FLOAT);
    HostTensor<float> grad_h_out({1, kT, kD}, ACL_FLOAT), grad_post({1, kT, 4}, ACL_FLOAT);
    int k = 0;
    for (auto* values : {&g.data, &x.data, &res.data, &h_out.data, &post.data}) {
      for (float& v : *values) v = static_cast<float>(++k * 7 % 23) * 0.125f - 1;
    }
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    ASSERT_EQ(
        aclnnMhcPostBackwardGetWorkspaceSize(
            g.tensor, x.tensor, with_res ? res.tensor : nullptr, h_out.tensor, post.tensor,
            grad_x.tensor, grad_res.tensor, grad_h_out.tensor, grad_post.tensor, &size, &executor),
        0)
        << aclGetRecentErrMsg();
    ASSERT_EQ(aclnnMhcPostBackward(nullptr, size, executor, nullptr), 0);
    ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0);
    const auto at = &Post::At;
    for (std::int64_t t = 0; t < kT; ++t) {
      for (std::int64_t j = 0; j < 4; ++j) {
        double to_post = 0;
        for (std::int64_t d = 0; d < kD; ++d) {
          double to_x = 0, to_h_out = 0;
          for (std::int64_t i = 0; i < 4; ++i) {
            const double grad = at(g, (t * 4 + i) * kD + d);
            to_x += (with_res ? at(res, (t * 4 + j) * 4 + i) : (i == j)) * grad;
            to_h_out += at(post, t * 4 + i) * grad;
          }
          EXPECT_NEAR(at(grad_x, (t * 4 + j) * kD + d), to_x, 1e-5);
          EXPECT_NEAR(at(grad_h_out, t * kD + d), to_h_out, 1e-5);
          to_post += at(g, (t * 4 + j) * kD + d) * at(h_out, t * kD + d);
        }
        EXPECT_NEAR(at(grad_post, t * 4 + j), to_post, 1e-4);
        for (std::int64_t i = 0; i < 4; ++i) {
          double to_res = 0;
          for (std::int64_t d = 0; d < kD; ++d) {
            to_res += at(x, (t * 4 + j) * kD + d) * at(g, (t * 4 + i) * kD + d);
          }
          EXPECT_NEAR(at(grad_res, (t * 4 + j) * 4 + i), to_res, 1e-4);
        }
      }
    }
  }
}

}  // namespace
}  // namespace anabranch::acl_test
