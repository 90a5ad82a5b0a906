// Sinkhorn as the last step of mhc_pre's forward and the first of its backward: the residual logits
// of a tile of tokens, kSinkhornLanes at a time.
#ifndef ANABRANCH_SRC_KERNELS_SINKHORN_STAGE_H_
#define ANABRANCH_SRC_KERNELS_SINKHORN_STAGE_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/cpu.h"
#include "anabranch/mhc_options.h"
#include "anabranch/tensor.h"
#include "src/core/tokens.h"
#include "src/kernels/pre_forward.h"
#include "src/kernels/sinkhorn.h"

namespace anabranch {

// Those of an operator that fuses mhc_pre and Sinkhorn.
SinkhornParams PreSinkhornParams(const MhcOptions& options, int n, std::int64_t num_iters);

// Of streams [*, n, D] with the matrix form's n*n logits.
PreShape PreSinkhornShape(const TensorView& x);

class SinkhornStage final : public ResidualStage {
 public:
  // h_res is what Forward writes, grad_h_res what Backward reads; either may be undefined when the
  // other is meant. Caches [N, *, n] and [N, *, n, n], or undefined: iterates are recomputed.
  SinkhornStage(const SinkhornParams& params, const TokenRows& h_res, const TokenRows& grad_h_res,
                const TensorView& sum_out, const TensorView& norm_out, bool backward,
                Target target);

  std::size_t scratch_bytes() const override;
  void Forward(std::int64_t token, int count, const float* z, std::byte* scratch) const override;
  void Backward(std::int64_t token, int count, const float* z, float* dz,
                std::byte* scratch) const override;

 private:
  struct Lanes {
    float* z;      // [n*n][16]
    float* other;  // [n*n][16]: h_res or its gradient
    float* sums;   // null when they are not wanted
    float* norms;
  };

  int Elements() const { return params_.n * params_.n; }
  template <class Body>
  void ForLanes(std::int64_t token, int count, const float* z, std::byte* scratch,
                const Body& body) const;
  void StoreIterates(std::int64_t first, int lanes, const Lanes& at) const;
  void LoadIterates(std::int64_t first, int lanes, const Lanes& at) const;

  SinkhornParams params_;
  SinkhornKernels kernels_;
  TokenRows h_res_, grad_h_res_;
  bool cached_;
  bool iterates_;
  StepRows sum_out_, norm_out_;
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_SINKHORN_STAGE_H_
