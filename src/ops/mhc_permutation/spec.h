// The description of mhc_permutation and its backward; include/anabranch/mhc_permutation.h has the
// formula.
#ifndef ANABRANCH_SRC_OPS_MHC_PERMUTATION_SPEC_H_
#define ANABRANCH_SRC_OPS_MHC_PERMUTATION_SPEC_H_

#include "anabranch/mhc_permutation.h"
#include "src/core/sizes.h"
#include "src/core/spec.h"

namespace anabranch::specs {

inline constexpr Limit kMhcPermutationLimits[] = {{Dim::kStreams, 1, kMaxPermutationStreams}};

// Hatch: n is found from the number n! of logits.
void LeadByPermutations(Checker& c, const TensorView& logits, Sizes* sizes);

using Permutation = MhcPermutationArgs;
inline constexpr Argument kMhcPermutationArguments[] = {
    In<&Permutation::logits>("logits", "logits", kCoefficient, "T,R"),
    Out<&Permutation::h_res>("h_res", "hRes", kCoefficient, "T,n,n|T,n*n"),
};
inline constexpr PassSpec kMhcPermutation = {
    .op = "mhc_permutation",
    .name = "mhc_permutation",
    .arguments = kMhcPermutationArguments,
    .limits = kMhcPermutationLimits,
    .leader = "logits",
    .residual = Residual::kPermutation,
    .lead = [](Checker& c, void* args, Sizes* sizes, Face /*face*/) {
      LeadByPermutations(c, Field<&Permutation::logits>(args), sizes);
    }};
SPEC_IS_SOUND(kMhcPermutation);

using PermutationBackward = MhcPermutationBackwardArgs;
inline constexpr Argument kMhcPermutationBackwardArguments[] = {
    In<&PermutationBackward::grad_h_res>("grad_h_res", "gradHRes", kCoefficient, "T,n,n|T,n*n"),
    In<&PermutationBackward::logits>("logits", "logits", kCoefficient, "T,R"),
    Out<&PermutationBackward::grad_logits>("grad_logits", "gradLogits", kCoefficient, "T,R")
        .MayBe("logits"),
};
inline constexpr PassSpec kMhcPermutationBackward = {
    .op = "mhc_permutation",
    .name = "mhc_permutation_backward",
    .arguments = kMhcPermutationBackwardArguments,
    .limits = kMhcPermutationLimits,
    .leader = "logits",
    .residual = Residual::kPermutation,
    .lead = [](Checker& c, void* args, Sizes* sizes, Face /*face*/) {
      LeadByPermutations(c, Field<&PermutationBackward::logits>(args), sizes);
    }};
SPEC_IS_SOUND(kMhcPermutationBackward);

}  // namespace anabranch::specs

#endif  // ANABRANCH_SRC_OPS_MHC_PERMUTATION_SPEC_H_
