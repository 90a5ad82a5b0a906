// The options that mHC code bases disagree on, with the defaults of DeepSeek-V4. One struct for all
// operators of the family and for forward and backward: a backward must be given its forward's.
#ifndef ANABRANCH_MHC_OPTIONS_H_
#define ANABRANCH_MHC_OPTIONS_H_

#include <cstdint>

namespace anabranch {

// Which form the residual part of mhc_pre has. Never guessed from the number of rows of phi: for
// n = 4 both n! and n*n + 2n are 24.
enum class Residual : std::uint8_t {
  kMatrix = 0,   // n*n logits, phi has n*n + 2n rows
  kPermutation,  // n! logits, phi has n! + 2n rows
  kNone,         // no residual part, phi has 2n rows, alpha two entries
};

// Each number is rounded to FP32 once before kernels use it (not on the double reference). A field
// means the same in every operator that reads it (each says which it reads): two epsilons are two
// fields, also in mhc_pre_sinkhorn, where C and Python have one argument, hc_eps, that sets both.
struct MhcOptions {
  double norm_eps = 1e-6;         // added to the mean square inside the root; finite, >= 0
  double pre_eps = 1e-6;          // added to h_pre; finite, >= 0
  double post_multiplier = 2;     // h_post = post_multiplier * sigmoid(...); finite
  double sinkhorn_eps = 1e-6;     // of Sinkhorn: added to the softmax and to each sum; >= 0
  std::int64_t num_iters = 20;    // Sinkhorn iterations, 1..1000000; 2 * num_iters normalisations
  double clamp_low = 0;           // logits are clamped to [clamp_low, clamp_high] first; (0, 0):
  double clamp_high = 0;          //   no clamp. clamp_low <= clamp_high
  std::int64_t op_impl_mode = 0;  // 0: FP32 products; 1: HF32/TF32 products allowed (unused here)
};

}  // namespace anabranch

#endif  // ANABRANCH_MHC_OPTIONS_H_
