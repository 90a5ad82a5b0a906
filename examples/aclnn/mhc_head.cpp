// aclnnMhcHead on real text: the final collapse of a stream of four lanes, in BF16; a plain loop in
// double checks it.
#include "acl/acl.h"
#include "aclnnop/aclnn_mhc_head.h"
#include "projection_util.h"

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
  const std::vector<float> fn = Projection(kLanes), base = {0.1f, -0.2f, 0.3f, 0.0f},
                           scale = {1.5f};
  std::vector<uint16_t> y(tokens * kHidden);
  {
    DeviceTensor x_dev(x, {1, tokens, kLanes, kHidden}, ACL_BF16);
    DeviceTensor fn_dev(fn, {kLanes, kWidth}, ACL_FLOAT), base_dev(base, {kLanes}, ACL_FLOAT);
    DeviceTensor scale_dev(scale, {1}, ACL_FLOAT);
    DeviceTensor y_dev(y, {1, tokens, kHidden}, ACL_BF16);
    uint64_t workspace_size = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnMhcHeadGetWorkspaceSize(x_dev.tensor, fn_dev.tensor, base_dev.tensor,
                                       scale_dev.tensor, 1e-6, 1e-6, y_dev.tensor, nullptr, nullptr,
                                       nullptr, &workspace_size, &executor));
    void* workspace = nullptr;
    if (workspace_size > 0) {
      CHECK(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    CHECK(aclnnMhcHead(workspace, workspace_size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    if (workspace != nullptr) CHECK(aclrtFree(workspace));
    y = y_dev.ToHost<uint16_t>();
  }

  double activations = 0;
  const double coefficients = 0;  // this call gives none
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<double> gates = Project(&x[t * kWidth], fn, kLanes);
    for (int64_t i = 0; i < kLanes; ++i) gates[i] = Sigmoid(gates[i] * scale[0] + base[i]) + 1e-6;
    activations =
        std::max(activations, CollapseError(&x[t * kWidth], gates.data(), &y[t * kHidden]));
  }
  std::printf("%lld bytes of %s collapsed; the first one: %8.5f %8.5f %8.5f ...\n",
              static_cast<long long>(tokens), argv[1], FromBf16(y[0]), FromBf16(y[1]),
              FromBf16(y[2]));

  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
  return Verdict(activations, coefficients);
}
