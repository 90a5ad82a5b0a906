// Checks of mhc_pre and its backward: those of their description.
#include "src/core/infer.h"
#include "src/ops/mhc_pre/mhc_pre.h"
#include "src/ops/mhc_pre/spec.h"

namespace anabranch {

Status InferMhcPre(MhcPreArgs* args) { return Infer(specs::kMhcPre, args); }
Status InferMhcPreBackward(MhcPreBackwardArgs* args) { return Infer(specs::kMhcPreBackward, args); }
Status Validate(const MhcPreArgs& args) { return Validate(specs::kMhcPre, args); }
Status Validate(const MhcPreBackwardArgs& args) { return Validate(specs::kMhcPreBackward, args); }

}  // namespace anabranch
