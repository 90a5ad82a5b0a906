#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "aclnnop/aclnn_ops_transformer.h"
#include "tests/acl/fixture.h"

namespace anabranch::acl_test {
namespace {

// FP32 tensors of one call; values from a fixed pattern.
class Tensors {
 public:
  HostTensor<float>& Make(const std::vector<std::int64_t>& sizes, bool filled = true) {
    HostTensor<float>& t = tensors_.emplace_back(sizes, ACL_FLOAT);
    for (float& v : t.data) v = filled ? static_cast<float>(++seed_ * 7 % 23) * 0.125f - 1 : -7;
    return t;
  }
  // A list takes its members over: they are not destroyed on their own.
  aclTensorList* List(const std::vector<std::int64_t>& sizes, int count, bool filled,
                      std::vector<HostTensor<float>*>* members) {
    std::vector<const aclTensor*> handles;
    for (int i = 0; i < count; ++i) {
      members->push_back(&Make(sizes, filled));
      handles.push_back(members->back()->tensor);
    }
    lists_.push_back(aclCreateTensorList(handles.data(), handles.size()));
    return lists_.back();
  }
  ~Tensors() {
    for (const aclTensorList* list : lists_) aclDestroyTensorList(list);
  }

 private:
  std::deque<HostTensor<float>> tensors_;
  std::vector<aclTensorList*> lists_;
  int seed_ = 0;
};

class AclnnAttnRes : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(aclrtSetDevice(0), 0); }
  void TearDown() override { aclrtResetDevice(0); }

  // Phase 2 and the wait.
  template <class Call>
  void Run(int phase_one, const Call& call) {
    ASSERT_EQ(phase_one, 0) << aclGetRecentErrMsg();
    std::vector<double> workspace(size_ / sizeof(double) + 16);
    auto address = reinterpret_cast<std::uintptr_t>(workspace.data());
    address = (address + 63) / 64 * 64;
    ASSERT_EQ(call(reinterpret_cast<void*>(address), size_, executor_, nullptr), 0);
    ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0) << aclGetRecentErrMsg();
  }

  static constexpr int kBlocks = 3, kT = 4, kD = 24;
  std::uint64_t size_ = 0;
  aclOpExecutor* executor_ = nullptr;
  Tensors tensors_;
};

TEST_F(AclnnAttnRes, ForwardAgreesWithADoubleLoop) {
  std::vector<HostTensor<float>*> v;
  const aclTensorList* blocks = tensors_.List({1, kT, kD}, kBlocks, true, &v);
  v.push_back(&tensors_.Make({1, kT, kD}));
  auto& w = tensors_.Make({1, kD});
  auto& gamma = tensors_.Make({kD});
  auto& h = tensors_.Make({1, kT, kD}, false);
  auto& rms = tensors_.Make({1, kT, kBlocks + 1, 1}, false);
  auto& alpha = tensors_.Make({1, kT, kBlocks + 1}, false);
  Run(aclnnBlockAttnResGetWorkspaceSize(blocks, w.tensor, v[3]->tensor, gamma.tensor, 0.5, 1e-6,
                                        true, h.tensor, rms.tensor, alpha.tensor, &size_,
                                        &executor_),
      aclnnBlockAttnRes);
  for (std::size_t t = 0; t < kT; ++t) {
    double score[kBlocks + 1], sum = 0;
    for (std::size_t l = 0; l <= kBlocks; ++l) {
      double squares = 0, dot = 0;
      for (std::size_t k = 0; k < kD; ++k) {
        const double value = v[l]->data[t * kD + k];
        squares += value * value;
        dot += value * w.data[k] * gamma.data[k];
      }
      const double root = std::sqrt(squares / kD + 1e-6);
      EXPECT_NEAR(rms.data[t * (kBlocks + 1) + l], root, 1e-6);
      sum += score[l] = std::exp(0.5 * dot / root);
    }
    for (std::size_t l = 0; l <= kBlocks; ++l) {
      EXPECT_NEAR(alpha.data[t * (kBlocks + 1) + l], score[l] / sum, 1e-6);
    }
    for (std::size_t k = 0; k < kD; ++k) {
      double want = 0;
      for (std::size_t l = 0; l <= kBlocks; ++l) want += score[l] / sum * v[l]->data[t * kD + k];
      EXPECT_NEAR(h.data[t * kD + k], want, 1e-6);
    }
  }
}

TEST_F(AclnnAttnRes, BackwardOfOneSourceIsExact) {
  std::vector<HostTensor<float>*> v, grads;
  const aclTensorList* blocks = tensors_.List({kT, kD}, 1, true, &v);
  const aclTensorList* grad_blocks = tensors_.List({kT, kD}, 1, false, &grads);
  auto& w = tensors_.Make({kD});
  auto& gamma = tensors_.Make({kD});
  auto& grad_h = tensors_.Make({kT, kD});
  auto& alpha = tensors_.Make({kT, 1}, false);
  auto& grad_w = tensors_.Make({kD}, false);
  auto& grad_gamma = tensors_.Make({kD}, false);
  std::fill(alpha.data.begin(), alpha.data.end(), 1.0f);
  Run(aclnnBlockAttnResBackwardGetWorkspaceSize(
          grad_h.tensor, blocks, w.tensor, alpha.tensor, nullptr, gamma.tensor, nullptr, 1, 1e-6,
          true, grad_blocks, nullptr, grad_w.tensor, grad_gamma.tensor, &size_, &executor_),
      aclnnBlockAttnResBackward);
  EXPECT_EQ(grads[0]->data, grad_h.data);
  EXPECT_EQ(grad_w.data, std::vector<float>(kD, 0.0f));
  EXPECT_EQ(grad_gamma.data, std::vector<float>(kD, 0.0f));
}

// Prepare and merge give what the direct call gives; the same for the gradients.
TEST_F(AclnnAttnRes, TwoPhasesEqualTheDirectCall) {
  std::vector<HostTensor<float>*> v, grads, want_grads;
  const aclTensorList* blocks = tensors_.List({kT, kD}, kBlocks, true, &v);
  const aclTensorList* grad_blocks = tensors_.List({kT, kD}, kBlocks, false, &grads);
  const aclTensorList* want_blocks = tensors_.List({kT, kD}, kBlocks, false, &want_grads);
  auto& partial = tensors_.Make({kT, kD});
  auto& w = tensors_.Make({1, kD});
  auto& h = tensors_.Make({kT, kD}, false);
  auto& alpha = tensors_.Make({kT, kBlocks + 1}, false);
  auto& grad_h = tensors_.Make({kT, kD});
  auto& want_partial = tensors_.Make({kT, kD}, false);
  auto& want_w = tensors_.Make({1, kD}, false);
  Run(aclnnBlockAttnResGetWorkspaceSize(blocks, w.tensor, partial.tensor, nullptr, 1, 1e-6, true,
                                        h.tensor, nullptr, alpha.tensor, &size_, &executor_),
      aclnnBlockAttnRes);
  Run(aclnnBlockAttnResBackwardGetWorkspaceSize(
          grad_h.tensor, blocks, w.tensor, alpha.tensor, partial.tensor, nullptr, nullptr, 1, 1e-6,
          true, want_blocks, want_partial.tensor, want_w.tensor, nullptr, &size_, &executor_),
      aclnnBlockAttnResBackward);

  // One query: [1, T, D] and [T, D] are the same memory.
  auto& o = tensors_.Make({1, kT, kD}, false);
  auto& m = tensors_.Make({1, kT}, false);
  auto& l = tensors_.Make({1, kT}, false);
  Run(aclnnAttnResPrepareGetWorkspaceSize(blocks, w.tensor, nullptr, 1, 1e-6, true, o.tensor,
                                          m.tensor, l.tensor, &size_, &executor_),
      aclnnAttnResPrepare);
  const auto flat = [](HostTensor<float>& t, const std::vector<std::int64_t>& sizes) {
    return aclCreateTensor(sizes.data(), sizes.size(), ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND,
                           sizes.data(), sizes.size(), t.data.data());
  };
  aclTensor* one_o = flat(o, {kT, kD});
  aclTensor* one_m = flat(m, {kT});
  aclTensor* one_l = flat(l, {kT});
  auto& merged = tensors_.Make({kT, kD}, false);
  Run(aclnnAttnResMergeGetWorkspaceSize(one_o, one_m, one_l, partial.tensor, w.tensor, nullptr, 1,
                                        1e-6, true, merged.tensor, &size_, &executor_),
      aclnnAttnResMerge);
  for (std::size_t k = 0; k < merged.data.size(); ++k) EXPECT_NEAR(merged.data[k], h.data[k], 1e-6);

  auto& grad_o = tensors_.Make({1, kT, kD}, false);
  auto& grad_m = tensors_.Make({1, kT}, false);
  auto& grad_l = tensors_.Make({1, kT}, false);
  auto& grad_v = tensors_.Make({kT, kD}, false);
  auto& grad_w = tensors_.Make({1, kD}, false);
  auto& grad_q = tensors_.Make({1, kD}, false);
  aclTensor* one_grad_o = flat(grad_o, {kT, kD});
  aclTensor* one_grad_m = flat(grad_m, {kT});
  aclTensor* one_grad_l = flat(grad_l, {kT});
  Run(aclnnAttnResMergeBackwardGetWorkspaceSize(grad_h.tensor, one_o, one_m, one_l, partial.tensor,
                                                w.tensor, nullptr, 1, 1e-6, true, one_grad_o,
                                                one_grad_m, one_grad_l, grad_v.tensor,
                                                grad_w.tensor, nullptr, &size_, &executor_),
      aclnnAttnResMergeBackward);
  Run(aclnnAttnResPrepareBackwardGetWorkspaceSize(
          grad_o.tensor, grad_m.tensor, grad_l.tensor, blocks, w.tensor, nullptr, 1, 1e-6, true,
          grad_blocks, grad_q.tensor, nullptr, &size_, &executor_),
      aclnnAttnResPrepareBackward);
  for (std::size_t k = 0; k < grad_v.data.size(); ++k) {
    EXPECT_NEAR(grad_v.data[k], want_partial.data[k], 1e-5);
    for (std::size_t i = 0; i < kBlocks; ++i) {
      EXPECT_NEAR(grads[i]->data[k], want_grads[i]->data[k], 1e-5);
    }
  }
  for (std::size_t k = 0; k < kD; ++k) {
    EXPECT_NEAR(grad_w.data[k] + grad_q.data[k], want_w.data[k], 2e-5);
  }
  for (aclTensor* t : {one_o, one_m, one_l, one_grad_o, one_grad_m, one_grad_l}) {
    aclDestroyTensor(t);
  }
}

TEST_F(AclnnAttnRes, FailuresNameTheArgument) {
  std::vector<HostTensor<float>*> v, grads;
  const aclTensorList* blocks = tensors_.List({kT, kD}, kBlocks, true, &v);
  const aclTensorList* grad_blocks = tensors_.List({kT, kD}, kBlocks - 1, false, &grads);
  auto& w = tensors_.Make({kD});
  auto& h = tensors_.Make({kT, kD}, false);
  auto& alpha = tensors_.Make({kT, kBlocks});
  auto& short_w = tensors_.Make({kD - 1});
  const auto forward = [&](const aclTensorList* list, const aclTensor* weight, aclTensor* out) {
    return aclnnBlockAttnResGetWorkspaceSize(list, weight, nullptr, nullptr, 1, 1e-6, true, out,
                                             nullptr, nullptr, &size_, &executor_);
  };
  ExpectFailure(forward(nullptr, w.tensor, h.tensor), 161001, {"blocks is null"});
  ExpectFailure(forward(blocks, nullptr, h.tensor), 161001, {"projWeight is null"});
  ExpectFailure(forward(blocks, w.tensor, nullptr), 161001, {"h is null"});
  ExpectFailure(forward(blocks, short_w.tensor, h.tensor), 161002, {"projWeight has shape"});
  const aclTensorList* empty = aclCreateTensorList(nullptr, 0);
  ExpectFailure(forward(empty, w.tensor, h.tensor), 161002, {"blocks has 0 tensors"});
  EXPECT_EQ(aclDestroyTensorList(empty), 0);
  const auto backward = [&](const aclTensor* cache, const aclTensorList* out) {
    return aclnnBlockAttnResBackwardGetWorkspaceSize(h.tensor, blocks, w.tensor, cache, nullptr,
                                                     nullptr, nullptr, 1, 1e-6, true, out, nullptr,
                                                     short_w.tensor, nullptr, &size_, &executor_);
  };
  ExpectFailure(backward(nullptr, grad_blocks), 161001, {"alpha is null"});
  ExpectFailure(backward(alpha.tensor, grad_blocks), 161002,
                {"gradBlocks has 2 tensors, expected 3"});
}

// Lists have their place among the arguments: blocks is argument 0 of the forward; of the backward
// gradH is argument 0, blocks 1 and gradBlocks the first output.
TEST_F(AclnnAttnRes, MembersOfListsGetNewAddresses) {
  std::vector<HostTensor<float>*> v;
  aclTensorList* blocks = tensors_.List({1, kT, kD}, 2, true, &v);
  auto& w = tensors_.Make({1, kD});
  auto& h = tensors_.Make({1, kT, kD}, false);
  auto& want = tensors_.Make({1, kT, kD}, false);
  const auto phase_one = [&](aclTensor* to) {
    return aclnnBlockAttnResGetWorkspaceSize(blocks, w.tensor, nullptr, nullptr, 0.5, 1e-6, false,
                                             to, nullptr, nullptr, &size_, &executor_);
  };
  auto& other = tensors_.Make({1, kT, kD});
  ASSERT_EQ(phase_one(h.tensor), 0) << aclGetRecentErrMsg();
  ASSERT_EQ(aclSetDynamicInputTensorAddr(executor_, 0, 1, blocks, other.data.data()), 0);
  ExpectFailure(aclSetTensorAddr(executor_, 0, h.tensor, h.data.data()), 161002,
                {"blocks, a list", "expected a tensor"});
  ExpectFailure(aclSetDynamicTensorAddr(executor_, 0, 2, blocks, h.data.data()), 161002,
                {"relativeIndex is 2", "less than 2"});
  Run(0, aclnnBlockAttnRes);
  v[1]->data = other.data;
  Run(phase_one(want.tensor), aclnnBlockAttnRes);
  EXPECT_EQ(h.data, want.data);

  std::vector<HostTensor<float>*> grads;
  aclTensorList* grad_blocks = tensors_.List({1, kT, kD}, 2, false, &grads);
  auto& alpha = tensors_.Make({1, kT, 2});
  auto& grad_w = tensors_.Make({1, kD}, false);
  ASSERT_EQ(aclnnBlockAttnResBackwardGetWorkspaceSize(
                h.tensor, blocks, w.tensor, alpha.tensor, nullptr, nullptr, nullptr, 0.5, 1e-6,
                false, grad_blocks, nullptr, grad_w.tensor, nullptr, &size_, &executor_),
            0)
      << aclGetRecentErrMsg();
  ASSERT_EQ(aclSetDynamicTensorAddr(executor_, 1, 0, blocks, other.data.data()), 0);
  ASSERT_EQ(aclSetDynamicOutputTensorAddr(executor_, 0, 0, grad_blocks, want.data.data()), 0);
  ExpectFailure(aclSetOutputTensorAddr(executor_, 0, w.tensor, w.data.data()), 161002,
                {"gradBlocks, a list"});
  want.data.assign(want.data.size(), -7.0f);
  Run(0, aclnnBlockAttnResBackward);
  EXPECT_EQ(grads[0]->data, std::vector<float>(grads[0]->data.size(), -7.0f));
  EXPECT_NE(want.data, grads[0]->data);
  EXPECT_NE(grads[1]->data, grads[0]->data);
}

}  // namespace
}  // namespace anabranch::acl_test
