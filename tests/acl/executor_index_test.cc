// What the indices of aclSetTensorAddr and its variants mean, for every operator: the tensor
// arguments of the signature in its order, absent ones and lists included.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "tests/acl/catalog_call.h"

namespace anabranch::acl_test {
namespace {

// From the signatures; `>` marks an output, `[]` a list.
const std::map<std::string, std::string> kSignatures = {
    {"mhc_pre",
     "x phi alpha bias gammaOptional >hIn >hPost >hRes >invRmsOptional >hMixOptional "
     ">hPreOptional"},
    {"mhc_pre_backward",
     "x phi alpha gradHIn gradHPost gradHRes invRms hMix hPre hPost gammaOptional "
     "gradXPostOptional >gradX "
     ">gradPhi >gradAlpha >gradBias >gradGamma"},
    {"mhc_pre_sinkhorn",
     "x phi alpha bias >hin >hPost >hRes >hPre >hcBeforeNorm >invRms >sumOut >normOut"},
    {"mhc_pre_sinkhorn_backward",
     "gradHin gradHPost gradHRes x phi alpha bias hPre hcBeforeNorm invRms sumOut normOut >gradX "
     ">gradPhi >gradAlpha >gradBias"},
    {"mhc_sinkhorn", "x >output >normOut >sumOut"},
    {"mhc_sinkhorn_backward", "gradOutput normOut sumOut >out"},
    {"mhc_permutation", "logits >hRes"},
    {"mhc_permutation_backward", "gradHRes logits >gradLogits"},
    {"mhc_post", "x hRes hOut hPost >out"},
    {"mhc_post_backward", "gradOutput x hRes hOut hPost >gradX >gradHRes >gradHOut >gradHPost"},
    {"mhc_head", "x fn base scale >y >invRms >hMix >w"},
    {"mhc_head_backward", "gradY x fn scale invRms hMix w >gradX >gradFn >gradBase >gradScale"},
    {"block_attn_res",
     "[]blocks projWeight partialBlockOptional rmsnormGammaOptional >h >rmsOptional "
     ">alphaOptional"},
    {"block_attn_res_backward",
     "gradH []blocks projWeight alpha partialBlockOptional rmsnormGammaOptional rmsOptional "
     ">[]gradBlocks "
     ">gradPartialBlock >gradProjWeight >gradRmsnormGamma"},
    {"attn_res_prepare", "[]blocksOptional queries rmsnormGammaOptional >o >m >l"},
    {"attn_res_prepare_backward",
     "gradO gradM gradL []blocksOptional queries rmsnormGammaOptional >[]gradBlocksOptional "
     ">gradQueries "
     ">gradRmsnormGamma"},
    {"attn_res_merge", "o m l v query rmsnormGammaOptional >h"},
    {"attn_res_merge_backward",
     "gradH o m l v query rmsnormGammaOptional >gradO >gradM >gradL >gradV >gradQuery "
     ">gradRmsnormGamma"},
};

class ExecutorIndex : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Table, ExecutorIndex, testing::ValuesIn(CatalogCall::Names()),
                         [](const auto& param_info) { return param_info.param; });

TEST_P(ExecutorIndex, CountsTheArgumentsOfTheSignature) {
  const OperatorEntry& entry = *FindOperator(GetParam());
  const Case c = CatalogCall::FirstForm(entry, {.seq = 2, .n = 3, .d = 8, .num_iters = 2});
  harness::Random random(3);
  harness::CaseTensors tensors = Allocate(entry, c, harness::Layout::kDense, random);
  FillInputs(entry, c, tensors, random);
  ASSERT_EQ(aclrtSetDevice(0), 0);
  CatalogCall call(entry, c, tensors);
  ASSERT_EQ(call.Prepare(), 0) << aclGetRecentErrMsg();

  // The wrong kind of call names the argument: that for lists of a tensor, that for tensors of a
  // list.
  float value = 0;
  const std::int64_t one = 1;
  const auto make = [&] {
    return aclCreateTensor(&one, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &one, 1, &value);
  };
  aclTensor* tensor = make();
  const aclTensor* members[] = {make()};
  aclTensorList* list = aclCreateTensorList(members, 1);
  std::istringstream words(kSignatures.at(GetParam()));
  std::size_t all = 0;
  std::size_t of_role[2] = {};
  for (std::string word; words >> word; ++all) {
    const bool output = word[0] == '>';
    if (output) word.erase(0, 1);
    const bool is_list = word[0] == '[';
    if (is_list) word.erase(0, 2);
    const std::size_t index = of_role[output ? 1 : 0]++;
    const auto expect_named = [&](int code, std::size_t number) {
      EXPECT_EQ(code, 161002) << word;
      const std::string message = aclGetRecentErrMsg();
      const std::string wanted = "index " + std::to_string(number) + " is " + word + ", a " +
                                 (is_list ? "list" : "tensor");
      EXPECT_NE(message.find(wanted), std::string::npos) << wanted << " not in: " << message;
    };
    aclOpExecutor* executor = call.executor();
    if (is_list) {
      expect_named(aclSetTensorAddr(executor, all, tensor, &value), all);
      expect_named(output ? aclSetOutputTensorAddr(executor, index, tensor, &value)
                          : aclSetInputTensorAddr(executor, index, tensor, &value),
                   index);
    } else {
      expect_named(aclSetDynamicTensorAddr(executor, all, 0, list, &value), all);
      expect_named(output ? aclSetDynamicOutputTensorAddr(executor, index, 0, list, &value)
                          : aclSetDynamicInputTensorAddr(executor, index, 0, list, &value),
                   index);
    }
  }
  const auto expect_end = [&](int code, std::size_t count) {
    EXPECT_EQ(code, 161002);
    const std::string message = aclGetRecentErrMsg();
    EXPECT_NE(message.find("expected less than " + std::to_string(count)), std::string::npos)
        << message;
  };
  expect_end(aclSetTensorAddr(call.executor(), all, tensor, &value), all);
  expect_end(aclSetInputTensorAddr(call.executor(), of_role[0], tensor, &value), of_role[0]);
  expect_end(aclSetOutputTensorAddr(call.executor(), of_role[1], tensor, &value), of_role[1]);
  EXPECT_EQ(aclDestroyTensor(tensor), 0);
  EXPECT_EQ(aclDestroyTensorList(list), 0);
  call.End();
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

}  // namespace
}  // namespace anabranch::acl_test
