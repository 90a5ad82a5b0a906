// aclnnMhcPreSinkhorn on real text: a stream of four lanes is collapsed into a sublayer's input,
// and the mixing coefficients are computed and normalised, in BF16; a plain loop in double checks
// the gates, and the columns of the mixing matrices must sum to one.
#include "acl/acl.h"
#include "aclnnop/aclnn_mhc_pre_sinkhorn.h"
#include "projection_util.h"

static const int64_t kRows = kLanes * kLanes + 2 * kLanes;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
    return 2;
  }
  const std::string text = ReadText(argv[1], 256);
  const int64_t tokens = static_cast<int64_t>(text.size());
  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(0));
  aclrtStream stream = nullptr;
  CHECK(aclrtCreateStream(&stream));

  const std::vector<uint16_t> x = TextStream(text);
  const std::vector<float> phi = Projection(kRows), alpha = {0.9f, 1.1f, 1.2f};
  std::vector<float> bias;
  for (int64_t f = 0; f < kRows; ++f) bias.push_back(0.05f * (f % 7) - 0.1f);
  std::vector<uint16_t> h_in(tokens * kHidden);
  std::vector<float> h_post(tokens * kLanes), h_res(tokens * kLanes * kLanes);
  {
    DeviceTensor x_dev(x, {1, tokens, kLanes, kHidden}, ACL_BF16);
    DeviceTensor phi_dev(phi, {kRows, kWidth}, ACL_FLOAT), alpha_dev(alpha, {3}, ACL_FLOAT);
    DeviceTensor bias_dev(bias, {kRows}, ACL_FLOAT);
    DeviceTensor h_in_dev(h_in, {1, tokens, kHidden}, ACL_BF16);
    DeviceTensor h_post_dev(h_post, {1, tokens, kLanes}, ACL_FLOAT);
    DeviceTensor h_res_dev(h_res, {1, tokens, kLanes, kLanes}, ACL_FLOAT);
    uint64_t workspace_size = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnMhcPreSinkhornGetWorkspaceSize(
        x_dev.tensor, phi_dev.tensor, alpha_dev.tensor, bias_dev.tensor, kLanes, 20, 1e-6, 1e-6,
        false, h_in_dev.tensor, h_post_dev.tensor, h_res_dev.tensor, nullptr, nullptr, nullptr,
        nullptr, nullptr, &workspace_size, &executor));
    void* workspace = nullptr;
    if (workspace_size > 0) {
      CHECK(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    CHECK(aclnnMhcPreSinkhorn(workspace, workspace_size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    if (workspace != nullptr) CHECK(aclrtFree(workspace));
    h_in = h_in_dev.ToHost<uint16_t>();
    h_post = h_post_dev.ToHost<float>();
    h_res = h_res_dev.ToHost<float>();
  }

  double activations = 0, coefficients = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    const std::vector<double> w = Project(&x[t * kWidth], phi, kRows);
    double gates[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      gates[i] = Sigmoid(w[i] * alpha[0] + bias[i]) + 1e-6;
      const double post = 2 * Sigmoid(w[kLanes + i] * alpha[1] + bias[kLanes + i]);
      coefficients = std::max(coefficients, std::fabs(post - h_post[t * kLanes + i]));
    }
    for (int64_t j = 0; j < kLanes; ++j) {
      double column = 0;
      for (int64_t i = 0; i < kLanes; ++i) column += h_res[(t * kLanes + i) * kLanes + j];
      coefficients = std::max(coefficients, std::fabs(column - 1));
    }
    activations = std::max(activations, CollapseError(&x[t * kWidth], gates, &h_in[t * kHidden]));
  }
  std::printf("%lld bytes of %s, the first one's coefficients:\n", static_cast<long long>(tokens),
              argv[1]);
  std::printf("  h_post %8.5f %8.5f %8.5f %8.5f\n", h_post[0], h_post[1], h_post[2], h_post[3]);
  for (int i = 0; i < 4; ++i) {
    std::printf("  %s %8.5f %8.5f %8.5f %8.5f\n", i == 0 ? "h_res " : "      ", h_res[i * 4],
                h_res[i * 4 + 1], h_res[i * 4 + 2], h_res[i * 4 + 3]);
  }

  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
  return Verdict(activations, coefficients);
}
