// Checks of mhc_pre_sinkhorn and its backward: those of their description.
#include "src/core/infer.h"
#include "src/ops/mhc_pre_sinkhorn/mhc_pre_sinkhorn.h"
#include "src/ops/mhc_pre_sinkhorn/spec.h"

namespace anabranch {

std::int64_t IterationsOf(const MhcPreSinkhornBackwardArgs& args) {
  return args.sum_out.defined() ? args.sum_out.sizes[0] / 2 : args.options.num_iters;
}

Status InferMhcPreSinkhorn(MhcPreSinkhornArgs* args) { return Infer(specs::kMhcPreSinkhorn, args); }
Status InferMhcPreSinkhornBackward(MhcPreSinkhornBackwardArgs* args) {
  return Infer(specs::kMhcPreSinkhornBackward, args);
}
Status Validate(const MhcPreSinkhornArgs& args, Face face) {
  return Validate(specs::kMhcPreSinkhorn, args, face);
}
Status Validate(const MhcPreSinkhornBackwardArgs& args, Face face) {
  return Validate(specs::kMhcPreSinkhornBackward, args, face);
}

}  // namespace anabranch
