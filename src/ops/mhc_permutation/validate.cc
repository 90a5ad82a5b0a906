// Checks of mhc_permutation and its backward: those of their description, and its hatch.
#include <string>

#include "src/core/infer.h"
#include "src/kernels/permutation.h"
#include "src/ops/mhc_permutation/mhc_permutation.h"
#include "src/ops/mhc_permutation/spec.h"

namespace anabranch {

std::int64_t StreamsOfPermutations(std::int64_t count) {
  for (std::int64_t n = 1; n <= kPermutationStreams; ++n) {
    if (PermutationCount(n) == count) return n;
  }
  return 0;
}

void specs::LeadByPermutations(Checker& c, const TensorView& logits, Sizes* sizes) {
  c.Sane("logits", logits, 1, "[*, n!]");
  if (!c.ok()) return;
  sizes->tokens = LeadingDims(logits, logits.rank() - 1);
  const std::int64_t count = logits.sizes[logits.rank() - 1];
  if (count == kUnknown) return;
  const std::int64_t n = StreamsOfPermutations(count);
  if (n == 0) {
    return c.Invalid("logits has shape " + ToString(logits.sizes) +
                     ", expected a last dimension of n! with n = 1..5: 1, 2, 6, 24 or 120");
  }
  (*sizes)[Dim::kStreams] = n;
}

Status InferMhcPermutation(MhcPermutationArgs* args) { return Infer(specs::kMhcPermutation, args); }
Status InferMhcPermutationBackward(MhcPermutationBackwardArgs* args) {
  return Infer(specs::kMhcPermutationBackward, args);
}
Status Validate(const MhcPermutationArgs& args, Face face) {
  return Validate(specs::kMhcPermutation, args, face);
}
Status Validate(const MhcPermutationBackwardArgs& args, Face face) {
  return Validate(specs::kMhcPermutationBackward, args, face);
}

}  // namespace anabranch
