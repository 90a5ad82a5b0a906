// mhc_permutation (mHC-lite): n! logits of every token weigh all n x n permutation matrices.
//
//   h_res = sum_r softmax(z)_r P_r,   P_r[i, perm_r[i]] = 1, permutations in lexicographic order
//
// The result is doubly stochastic without iterations. Shapes: `*` stands for any leading dimensions
// (tokens); n = residual streams, 1..5. Everything is FP32; everything FP64 runs the
// double-precision reference.
#ifndef ANABRANCH_MHC_PERMUTATION_H_
#define ANABRANCH_MHC_PERMUTATION_H_

#include "anabranch/context.h"
#include "anabranch/export.h"
#include "anabranch/mhc_options.h"
#include "anabranch/plan.h"
#include "anabranch/status.h"
#include "anabranch/tensor.h"

namespace anabranch {

struct MhcPermutationArgs {
  TensorView logits;   // in  [*, n!]
  TensorView h_res;    // out [*, n, n] or [*, n*n], overwritten; overlaps nothing
  MhcOptions options;  // none of them matters here
};

struct MhcPermutationBackwardArgs {
  TensorView grad_h_res;   // in  [*, n, n] or [*, n*n]
  TensorView logits;       // in  [*, n!]
  TensorView grad_logits;  // out [*, n!], overwritten; may be exactly logits
  MhcOptions options;
};

// Shape inference: fills in an absent h_res ([*, n, n]) or grad_logits, refuses contradictions. An
// unknown n! is found from h_res where that is given.
[[nodiscard]] ANABRANCH_EXPORT Status InferMhcPermutation(MhcPermutationArgs* args);
[[nodiscard]] ANABRANCH_EXPORT Status InferMhcPermutationBackward(MhcPermutationBackwardArgs* args);

// Checks and plans; nothing is written. No workspace. Errors: kNullArgument, kInvalidArgument,
// kOutOfMemory.
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const MhcPermutationArgs& args, Plan* plan,
                                              const Context& context = Context::Default());
[[nodiscard]] ANABRANCH_EXPORT Status Prepare(const MhcPermutationBackwardArgs& args, Plan* plan,
                                              const Context& context = Context::Default());

}  // namespace anabranch

#endif  // ANABRANCH_MHC_PERMUTATION_H_
