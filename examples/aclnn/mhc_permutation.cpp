// aclnnMhcPermutation on real text: the bytes of a file become logits of the six permutations of
// three lanes; their mixture is a doubly stochastic matrix, checked by a plain loop in double.
#include <algorithm>

#include "acl/acl.h"
#include "aclnnop/aclnn_mhc_permutation.h"
#include "sample_util.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
    return 2;
  }
  const std::string text = ReadText(argv[1], 512);
  const int64_t tokens = static_cast<int64_t>(text.size());
  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(0));
  aclrtStream stream = nullptr;
  CHECK(aclrtCreateStream(&stream));

  std::vector<float> logits, h_res(tokens * 9);
  for (int64_t t = 0; t < tokens; ++t) {
    const uint64_t byte = static_cast<unsigned char>(text[t]);
    for (int64_t r = 0; r < 6; ++r) logits.push_back(2 * Embed(byte * 64 + r));
  }
  {
    DeviceTensor logits_dev(logits, {1, tokens, 6}, ACL_FLOAT);
    DeviceTensor h_res_dev(h_res, {1, tokens, 3, 3}, ACL_FLOAT);
    uint64_t workspace_size = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnMhcPermutationGetWorkspaceSize(logits_dev.tensor, h_res_dev.tensor, &workspace_size,
                                              &executor));
    void* workspace = nullptr;
    if (workspace_size > 0) {
      CHECK(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    CHECK(aclnnMhcPermutation(workspace, workspace_size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    if (workspace != nullptr) CHECK(aclrtFree(workspace));
    h_res = h_res_dev.ToHost<float>();
  }

  double worst = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    double total = 0, want[9] = {0};
    int lanes[3] = {0, 1, 2};
    for (int64_t r = 0; r < 6; ++r) {
      const double p = std::exp(static_cast<double>(logits[t * 6 + r]));
      total += p;
      for (int i = 0; i < 3; ++i) want[i * 3 + lanes[i]] += p;
      std::next_permutation(lanes, lanes + 3);
    }
    for (int k = 0; k < 9; ++k)
      worst = std::max(worst, std::fabs(want[k] / total - h_res[t * 9 + k]));
  }
  std::printf("%lld bytes of %s as 3 x 3 mixing matrices; the first one:\n",
              static_cast<long long>(tokens), argv[1]);
  for (int i = 0; i < 3; ++i) {
    std::printf("  %8.5f %8.5f %8.5f\n", h_res[i * 3], h_res[i * 3 + 1], h_res[i * 3 + 2]);
  }
  const bool good = worst <= 2e-6;
  std::printf("largest error against a double loop: %.3g: %s\n", worst, good ? "ok" : "WRONG");
  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
  return good ? 0 : 1;
}
