// aclnnMhcSinkhorn on real text: the bytes of a file become logits of 4 x 4 mixing matrices, which
// are made nearly doubly stochastic; then a plain loop in double checks them.
#include "acl/acl.h"
#include "aclnnop/aclnn_mhc_sinkhorn.h"
#include "sample_util.h"

static const int64_t kN = 4;
static const int64_t kIters = 20;

// The definition, for one matrix in place.
static void Reference(double* m) {
  const double eps = 1e-6f;
  for (int i = 0; i < kN; ++i) {
    double top = m[i * kN], sum = 0;
    for (int j = 1; j < kN; ++j) top = std::fmax(top, m[i * kN + j]);
    for (int j = 0; j < kN; ++j) sum += m[i * kN + j] = std::exp(m[i * kN + j] - top);
    for (int j = 0; j < kN; ++j) m[i * kN + j] = m[i * kN + j] / sum + eps;
  }
  for (int step = 1; step < 2 * kIters; ++step) {
    const bool columns = step % 2 == 1;
    for (int r = 0; r < kN; ++r) {
      double sum = eps;
      for (int k = 0; k < kN; ++k) sum += columns ? m[k * kN + r] : m[r * kN + k];
      for (int k = 0; k < kN; ++k) (columns ? m[k * kN + r] : m[r * kN + k]) /= sum;
    }
  }
}

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

  std::vector<float> logits;
  for (int64_t t = 0; t < tokens; ++t) {
    const uint64_t byte = static_cast<unsigned char>(text[t]);
    for (int64_t k = 0; k < kN * kN; ++k) logits.push_back(2 * Embed(byte * 64 + k));
  }
  std::vector<float> h_res(logits.size());
  {
    DeviceTensor x(logits, {1, tokens, kN, kN}, ACL_FLOAT);
    DeviceTensor out(h_res, {1, tokens, kN, kN}, ACL_FLOAT);
    uint64_t workspace_size = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnMhcSinkhornGetWorkspaceSize(x.tensor, 1e-6f, kIters, out.tensor, nullptr, nullptr,
                                           &workspace_size, &executor));
    void* workspace = nullptr;
    if (workspace_size > 0) {
      CHECK(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    CHECK(aclnnMhcSinkhorn(workspace, workspace_size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    h_res = out.ToHost<float>();
    if (workspace != nullptr) CHECK(aclrtFree(workspace));
  }

  double worst = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    double m[16];
    for (int k = 0; k < 16; ++k) m[k] = logits[t * 16 + k];
    Reference(m);
    for (int k = 0; k < 16; ++k) worst = std::fmax(worst, std::fabs(m[k] - h_res[t * 16 + k]));
  }
  std::printf("%lld bytes of %s as 4 x 4 mixing matrices; the first one:\n",
              static_cast<long long>(tokens), argv[1]);
  for (int i = 0; i < kN; ++i) {
    std::printf("  %8.5f %8.5f %8.5f %8.5f\n", h_res[i * 4], h_res[i * 4 + 1], h_res[i * 4 + 2],
                h_res[i * 4 + 3]);
  }
  const bool good = worst <= 4e-6;
  std::printf("largest error against a double loop: %.3g: %s\n", worst, good ? "ok" : "WRONG");
  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
  return good ? 0 : 1;
}
