// aclnnBlockAttnRes on real text: the bytes of a file stand for the outputs of earlier blocks, and
// every token attends over them, in BF16; then a plain loop in double checks it.
//
//   g++ -std=c++11 block_attn_res.cpp -I$ASCEND_HOME_PATH/include -L$ASCEND_HOME_PATH/lib64
//       -lascendcl -lnnopbase -lopapi -o block_attn_res && ./block_attn_res FILE      (one line)
#include <memory>

#include "acl/acl.h"
#include "aclnnop/aclnn_block_attn_res.h"
#include "sample_util.h"

static const int64_t kBlocks = 5;
static const int64_t kHidden = 256;
static const double kEps = 1e-6;

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

  // Block b of a byte, and one query for all tokens.
  std::vector<std::vector<uint16_t> > v(kBlocks);
  for (int64_t b = 0; b < kBlocks; ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      const uint64_t byte = static_cast<unsigned char>(text[t]);
      for (int64_t d = 0; d < kHidden; ++d) {
        v[b].push_back(ToBf16(Embed((byte * 16 + b) * 4096 + d)));
      }
    }
  }
  std::vector<float> w;
  for (int64_t d = 0; d < kHidden; ++d) w.push_back(0.1f * Embed(77000000 + d));
  std::vector<uint16_t> h(v[0].size());
  std::vector<float> alpha(tokens * kBlocks);
  {
    const std::vector<int64_t> rows = {1, tokens, kHidden};
    std::vector<std::unique_ptr<DeviceTensor> > sources;
    std::vector<const aclTensor*> members;
    for (int64_t b = 0; b < kBlocks; ++b) {
      sources.emplace_back(new DeviceTensor(v[b], rows, ACL_BF16));
      members.push_back(sources.back()->tensor);
    }
    aclTensorList* blocks = aclCreateTensorList(members.data(), members.size());
    DeviceTensor w_dev(w, {kHidden}, ACL_FLOAT);
    DeviceTensor h_dev(h, rows, ACL_BF16);
    DeviceTensor alpha_dev(alpha, {1, tokens, kBlocks}, ACL_FLOAT);

    // Phase 1: check and size. Phase 2: queue. Then wait and fetch.
    uint64_t workspace_size = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnBlockAttnResGetWorkspaceSize(blocks, w_dev.tensor, nullptr, nullptr, 1.0, kEps, true,
                                            h_dev.tensor, nullptr, alpha_dev.tensor,
                                            &workspace_size, &executor));
    void* workspace = nullptr;
    if (workspace_size > 0) {
      CHECK(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    CHECK(aclnnBlockAttnRes(workspace, workspace_size, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    h = h_dev.ToHost<uint16_t>();
    alpha = alpha_dev.ToHost<float>();
    if (workspace != nullptr) CHECK(aclrtFree(workspace));
    CHECK(aclDestroyTensorList(blocks));  // and its members
    for (std::size_t b = 0; b < sources.size(); ++b) sources[b]->tensor = nullptr;
  }

  double worst = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    double weight[kBlocks], sum = 0;
    for (int64_t b = 0; b < kBlocks; ++b) {
      double squares = 0, dot = 0;
      for (int64_t d = 0; d < kHidden; ++d) {
        const double value = FromBf16(v[b][t * kHidden + d]);
        squares += value * value;
        dot += value * w[d];
      }
      weight[b] = std::exp(dot / std::sqrt(squares / kHidden + kEps));
      sum += weight[b];
    }
    for (int64_t d = 0; d < kHidden; ++d) {
      double want = 0;
      for (int64_t b = 0; b < kBlocks; ++b) {
        want += weight[b] / sum * FromBf16(v[b][t * kHidden + d]);
      }
      const double got = FromBf16(h[t * kHidden + d]);
      worst = std::fmax(worst, std::fabs(got - want) / std::fmax(1.0, std::fabs(want)));
    }
  }
  std::printf("%s: %lld bytes of %s, %lld blocks [1, %lld, %lld] BF16\n", aclrtGetSocName(),
              static_cast<long long>(tokens), argv[1], static_cast<long long>(kBlocks),
              static_cast<long long>(tokens), static_cast<long long>(kHidden));
  for (int64_t t = 0; t < tokens && t < 3; ++t) {
    std::printf("  byte 0x%02x, weights of the blocks:", static_cast<unsigned char>(text[t]));
    for (int64_t b = 0; b < kBlocks; ++b) std::printf(" %7.4f", alpha[t * kBlocks + b]);
    std::printf("\n");
  }
  const bool good = worst <= 1.01 / 256;  // one rounding to BF16 is at most 2^-8
  std::printf("largest error against a double loop: %.3g: %s\n", worst, good ? "ok" : "WRONG");

  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
  return good ? 0 : 1;
}
