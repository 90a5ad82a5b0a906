// Checks of mhc_post and its backward: those of their description.
#include "src/core/infer.h"
#include "src/ops/mhc_post/mhc_post.h"
#include "src/ops/mhc_post/spec.h"

namespace anabranch {

Status InferMhcPost(MhcPostArgs* args) { return Infer(specs::kMhcPost, args); }
Status InferMhcPostBackward(MhcPostBackwardArgs* args) {
  return Infer(specs::kMhcPostBackward, args);
}
Status Validate(const MhcPostArgs& args, Face face) {
  return Validate(specs::kMhcPost, args, face);
}
Status Validate(const MhcPostBackwardArgs& args, Face face) {
  return Validate(specs::kMhcPostBackward, args, face);
}

}  // namespace anabranch
