// aclnnMhcPost on real text: the bytes of a file become a residual stream of four lanes, a
// sublayer's output is written back and the lanes are mixed, in BF16; then a plain loop in double
// checks it.
//
//   g++ -std=c++11 mhc_post.cpp -I$ASCEND_HOME_PATH/include -L$ASCEND_HOME_PATH/lib64
//       -lascendcl -lnnopbase -lopapi -o mhc_post && ./mhc_post FILE      (one line)
#include "acl/acl.h"
#include "aclnnop/aclnn_mhc_post.h"
#include "sample_util.h"

static const int64_t kLanes = 4;
static const int64_t kHidden = 128;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
    return 2;
  }
  const std::string text = ReadText(argv[1], 1024);
  const int64_t tokens = static_cast<int64_t>(text.size());

  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(0));
  aclrtStream stream = nullptr;
  CHECK(aclrtCreateStream(&stream));

  // Every byte: four lanes, a sublayer's output, and coefficients (each lane keeps 0.7 of itself).
  std::vector<float> x, h_out, h_post, h_res;
  for (int64_t t = 0; t < tokens; ++t) {
    const uint64_t byte = static_cast<unsigned char>(text[t]);
    for (int64_t k = 0; k < kLanes * kHidden; ++k) x.push_back(Embed(byte * 4096 + k));
    for (int64_t d = 0; d < kHidden; ++d) h_out.push_back(Embed(byte * 4096 + 2048 + d));
    for (int64_t i = 0; i < kLanes; ++i) h_post.push_back(0.5f + 0.25f * i);
    for (int64_t j = 0; j < kLanes; ++j) {
      for (int64_t i = 0; i < kLanes; ++i) h_res.push_back(i == j ? 0.7f : 0.1f);
    }
  }
  const std::vector<uint16_t> x16 = ToBf16(x), h_out16 = ToBf16(h_out);
  std::vector<uint16_t> y16(x16.size());
  {
    DeviceTensor x_dev(x16, {1, tokens, kLanes, kHidden}, ACL_BF16);
    DeviceTensor h_res_dev(h_res, {1, tokens, kLanes, kLanes}, ACL_FLOAT);
    DeviceTensor h_out_dev(h_out16, {1, tokens, kHidden}, ACL_BF16);
    DeviceTensor h_post_dev(h_post, {1, tokens, kLanes}, ACL_FLOAT);
    DeviceTensor y_dev(y16, {1, tokens, kLanes, kHidden}, ACL_BF16);

    // Phase 1: check and size. Phase 2: queue. Then wait and fetch.
    uint64_t workspace_size = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnMhcPostGetWorkspaceSize(x_dev.tensor, h_res_dev.tensor, h_out_dev.tensor,
                                       h_post_dev.tensor, y_dev.tensor, &workspace_size,
                                       &executor));
    void* workspace = nullptr;
    if (workspace_size > 0) {
      CHECK(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    CHECK(aclnnMhcPost(workspace, workspace_size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    y16 = y_dev.ToHost<uint16_t>();
    if (workspace != nullptr) CHECK(aclrtFree(workspace));
  }

  double worst = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < kLanes; ++i) {
      for (int64_t d = 0; d < kHidden; ++d) {
        double want =
            static_cast<double>(h_post[t * kLanes + i]) * FromBf16(h_out16[t * kHidden + d]);
        for (int64_t j = 0; j < kLanes; ++j) {
          want += static_cast<double>(h_res[(t * kLanes + j) * kLanes + i]) *
                  FromBf16(x16[(t * kLanes + j) * kHidden + d]);
        }
        const double got = FromBf16(y16[(t * kLanes + i) * kHidden + d]);
        worst = std::fmax(worst, std::fabs(got - want) / std::fmax(1.0, std::fabs(want)));
      }
    }
  }
  std::printf("%s: %lld bytes of %s as a stream [1, %lld, %lld, %lld] BF16\n", aclrtGetSocName(),
              static_cast<long long>(tokens), argv[1], static_cast<long long>(tokens),
              static_cast<long long>(kLanes), static_cast<long long>(kHidden));
  for (int64_t t = 0; t < tokens && t < 3; ++t) {
    std::printf("  byte 0x%02x, element 0 of the lanes:", static_cast<unsigned char>(text[t]));
    for (int64_t i = 0; i < kLanes; ++i) {
      std::printf(" %9.5f", FromBf16(y16[(t * kLanes + i) * kHidden]));
    }
    std::printf("\n");
  }
  const bool good = worst <= 1.01 / 256;  // one rounding to BF16 is at most 2^-8
  std::printf("largest error against a double loop: %.3g: %s\n", worst, good ? "ok" : "WRONG");

  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
  return good ? 0 : 1;
}
