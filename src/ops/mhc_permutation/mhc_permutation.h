// Inside of mhc_permutation: see include/anabranch/mhc_permutation.h.
#ifndef ANABRANCH_SRC_OPS_MHC_PERMUTATION_MHC_PERMUTATION_H_
#define ANABRANCH_SRC_OPS_MHC_PERMUTATION_MHC_PERMUTATION_H_

#include "anabranch/mhc_permutation.h"
#include "src/core/spec.h"

namespace anabranch {

// null -> dtype -> rank and shape -> overlap.
Status Validate(const MhcPermutationArgs& args, Face face);
Status Validate(const MhcPermutationBackwardArgs& args, Face face);

// The definition, in double precision, on FP64 tensors; arguments have been validated.
void MhcPermutationReference(const MhcPermutationArgs& args);
void MhcPermutationBackwardReference(const MhcPermutationBackwardArgs& args);

// n of n! logits; 0 if `count` is no n! with n = 1..5.
std::int64_t StreamsOfPermutations(std::int64_t count);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_MHC_PERMUTATION_MHC_PERMUTATION_H_
