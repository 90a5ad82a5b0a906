// The backward that mhc_pre, mhc_pre_sinkhorn and mhc_head share.
//
// Tokens are taken a few tiles at a time, a step: first what each token needs of its own (dot
// products, gates, d_mix; items of kGradItem tokens), then grad_x and grad_phi, where the items are
// blocks of D, so that grad_phi is summed over all tokens by whoever has the block, in one order,
// and kept once. x is read from memory the first time and from cache the second.
#ifndef ANABRANCH_SRC_KERNELS_PRE_BACKWARD_H_
#define ANABRANCH_SRC_KERNELS_PRE_BACKWARD_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/context.h"
#include "anabranch/plan.h"
#include "anabranch/tensor.h"
#include "src/core/tokens.h"
#include "src/kernels/gates.h"
#include "src/kernels/pre_forward.h"
#include "src/kernels/projection_grad.h"

namespace anabranch {

inline constexpr int kGradItem = kGradTile / 2;

struct PreBackwardTensors {
  TensorView x;            // [*, n, D]
  TensorView phi;          // [F, K]
  TensorView alpha;        // one entry a segment
  TensorView bias;         // [F]; read only with a stage
  TensorView gamma;        // [n, D] or absent
  TensorView grad_h_in;    // [*, D]
  TensorView grad_x_post;  // like x or absent
  TokenRows grad_h_post;   // [*, n]
  TokenRows grad_h_res;    // [*, res] in rows of res_columns; read only without a stage
  std::int64_t res_columns = 1;
  TokenRows inv_rms, h_mix, h_pre;
  TokenRows h_post;  // undefined: recomputed from h_mix (needs bias)
  TensorView grad_x, grad_phi, grad_alpha, grad_bias;
  TensorView grad_gamma;  // or absent
  // Each already rounded to FP32.
  float hc_eps = 0;
  float post_multiplier = 2;
};

class PreBackward {
 public:
  // `stage`, if not null, turns the residual logits (recomputed) into their gradients and must
  // outlive this.
  PreBackward(const PreShape& shape, const PreBackwardTensors& tensors, const ResidualStage* stage,
              Target target, const Context& context, PlanInfo* info);
  // Parameter gradients are overwritten, with zeros for no tokens.
  void Run(std::byte* workspace, const Context& context) const;

 private:
  struct Memory;
  struct Slot;
  Memory Cut(std::byte* workspace) const;
  Slot SlotAt(const Memory& memory, int slot) const;
  void TokenItem(std::int64_t token, int begin, int count, const Memory& memory,
                 const Slot& slot) const;
  void Logits(std::int64_t token, const Memory& memory, float* gates, float* z) const;
  void TokenGradients(std::int64_t token, int index, const Memory& memory, const float* dots,
                      const float* h_post, float* dz, float* partial) const;
  void StreamDotsOf(std::int64_t token, std::byte* staging, float* dots) const;
  void BlockItem(std::int64_t block, std::int64_t token, int count, bool first, bool last,
                 const Memory& memory, const Slot& slot) const;
  void TileOfBlock(std::int64_t begin, std::int64_t token, int index, int count, bool more,
                   const Memory& memory, const Slot& slot) const;
  void RunStaged(GradUnits call, std::int64_t begin, std::int64_t token, const Slot& slot) const;
  std::size_t UnitsBefore(std::int64_t begin) const;
  float* GradUnitsOf(std::int64_t begin, const Memory& memory, const Slot& slot) const;
  GradParameters ParametersOf(std::int64_t begin, const Memory& memory, const Slot& slot) const;
  void FinishSmall(const Memory& memory) const;
  void ZeroParameters() const;

  PreShape shape_;
  PreBackwardTensors t_;
  const ResidualStage* stage_;
  ProjectionGradKernels kernels_;
  SigmoidFunction sigmoid_;
  TokenRows x_, grad_h_in_, grad_x_post_, grad_x_;
  bool dense_;
  bool stream_;
  int threads_ = 1;
  std::int64_t block_ = kGradBlock;  // elements of D, whole units of 32
  std::int64_t blocks_;
  std::int64_t step_;  // tokens
  bool one_step_;      // takes all of them
  std::size_t slot_bytes_;
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_PRE_BACKWARD_H_
