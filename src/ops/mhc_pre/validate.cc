// Checks of mhc_pre and its backward: those of their description.
#include "src/core/infer.h"
#include "src/ops/mhc_pre/mhc_pre.h"
#include "src/ops/mhc_pre/spec.h"

namespace anabranch {

Status InferMhcPre(MhcPreArgs* args) { return Infer(specs::kMhcPre, args); }
Status InferMhcPreBackward(MhcPreBackwardArgs* args) { return Infer(specs::kMhcPreBackward, args); }
Status Validate(const MhcPreArgs& args, Face face) { return Validate(specs::kMhcPre, args, face); }
Status Validate(const MhcPreBackwardArgs& args, Face face) {
  return Validate(specs::kMhcPreBackward, args, face);
}

}  // namespace anabranch
