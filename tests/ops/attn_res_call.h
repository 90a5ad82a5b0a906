// Small FP32 calls of the attention residual operators for tests.
#ifndef ANABRANCH_TESTS_OPS_ATTN_RES_CALL_H_
#define ANABRANCH_TESTS_OPS_ATTN_RES_CALL_H_

#include <deque>
#include <vector>

#include "anabranch/attn_res.h"
#include "src/tools/harness/tensors.h"

namespace anabranch::attn_test {

// Owns dense FP32 tensors; addresses stay.
class Memory {
 public:
  TensorView Tensor(const Dims& sizes, float value = 0) {
    std::vector<float>& data =
        storage_.emplace_back(static_cast<std::size_t>(NumElements(sizes)) + 1, value);
    return TensorView(data.data(), DType::kFloat32, sizes);
  }
  TensorView Random(const Dims& sizes, harness::Random& random, double scale = 1) {
    const TensorView t = Tensor(sizes);
    for (std::int64_t k = 0; k < t.numel(); ++k) {
      static_cast<float*>(t.data)[k] = static_cast<float>(scale * random.Normal());
    }
    return t;
  }

 private:
  std::deque<std::vector<float>> storage_;
};

inline float* Data(const TensorView& t) { return static_cast<float*>(t.data); }
inline std::vector<float> Values(const TensorView& t) {
  return std::vector<float>(Data(t), Data(t) + t.numel());
}

// Forward and backward on the same random inputs: N blocks and a partial block if wanted.
struct Call {
  Call(std::int64_t blocks, bool partial, std::int64_t tokens, std::int64_t d, double query = 0.3,
       std::uint64_t seed = 5) {
    harness::Random random(seed);
    const auto sources = blocks + (partial ? 1 : 0);
    for (std::int64_t i = 0; i < blocks; ++i) {
      forward.blocks.push_back(memory.Random({tokens, d}, random));
      backward.grad_blocks.push_back(memory.Tensor({tokens, d}, -7));
    }
    if (partial) {
      forward.partial_block = memory.Random({tokens, d}, random);
      backward.grad_partial_block = memory.Tensor({tokens, d}, -7);
    }
    forward.proj_weight = memory.Random({d}, random, query);
    forward.rmsnorm_gamma = memory.Random({d}, random);
    forward.h = memory.Tensor({tokens, d}, -7);
    forward.alpha_cache = memory.Tensor({tokens, sources}, -7);
    forward.rms_cache = memory.Tensor({tokens, sources, 1}, -7);
    backward.grad_h = memory.Random({tokens, d}, random);
    backward.grad_proj_weight = memory.Tensor({d}, -7);
    backward.grad_rmsnorm_gamma = memory.Tensor({d}, -7);
    Share();
  }

  // The backward's inputs are the forward's.
  void Share() {
    backward.blocks = forward.blocks;
    backward.partial_block = forward.partial_block;
    backward.proj_weight = forward.proj_weight;
    backward.rmsnorm_gamma = forward.rmsnorm_gamma;
    backward.alpha_cache = forward.alpha_cache;
    backward.rms_cache = forward.rms_cache;
    backward.scale = forward.scale;
    backward.rmsnorm_eps = forward.rmsnorm_eps;
    backward.enable_rmsnorm = forward.enable_rmsnorm;
  }

  Memory memory;
  BlockAttnResArgs forward;
  BlockAttnResBackwardArgs backward;
};

template <class Args>
Status RunArgs(const Args& args) {
  Plan plan;
  Status status = Prepare(args, &plan);
  return status.ok() ? plan.Run() : status;
}

}  // namespace anabranch::attn_test

#endif  // ANABRANCH_TESTS_OPS_ATTN_RES_CALL_H_
