// Checks of mhc_head and its backward: those of their description.
#include "src/core/infer.h"
#include "src/ops/mhc_head/mhc_head.h"
#include "src/ops/mhc_head/spec.h"

namespace anabranch {

Status InferMhcHead(MhcHeadArgs* args) { return Infer(specs::kMhcHead, args); }
Status InferMhcHeadBackward(MhcHeadBackwardArgs* args) {
  return Infer(specs::kMhcHeadBackward, args);
}
Status Validate(const MhcHeadArgs& args, Face face) {
  return Validate(specs::kMhcHead, args, face);
}
Status Validate(const MhcHeadBackwardArgs& args, Face face) {
  return Validate(specs::kMhcHeadBackward, args, face);
}

}  // namespace anabranch
