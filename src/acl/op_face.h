// What all aclnn operators have in common: phase 1 turns a list of named tensors into an executor,
// phase 2 queues the executor's plan on a stream. An operator's own file lists its tensors, builds
// the library's argument struct from their views, and states its facts for the platform profile.
#ifndef ANABRANCH_SRC_ACL_OP_FACE_H_
#define ANABRANCH_SRC_ACL_OP_FACE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "aclnn/aclnn_base.h"
#include "anabranch/plan.h"
#include "anabranch/tensor.h"
#include "src/acl/profile.h"

namespace anabranch::acl {

// One tensor argument, in the order of the call's signature. A tensor that the signature has as
// `aclTensor*` is an output; of the few outputs that it has as `const aclTensor*` say so.
struct TensorArg {
  TensorArg(const char* arg, const aclTensor* value, bool is_required = true,
            bool is_output = false)
      : name(arg), tensor(value), required(is_required), output(is_output) {}
  TensorArg(const char* arg, aclTensor* value, bool is_required = true)
      : TensorArg(arg, static_cast<const aclTensor*>(value), is_required, true) {}

  const char* name;
  const aclTensor* tensor;
  bool required;
  bool output;
};

// A list of tensors; its members stand behind each other in Views.
struct ListArg {
  const char* name;
  const aclTensorList* list;
  bool required = true;
  bool output = false;
  // How many single tensors the signature has before this list (for Set*TensorAddr).
  std::size_t tensors_before = 0;
};

// Views of a call's tensors by signature order; absent ones are undefined views.
using Views = std::vector<TensorView>;

struct OpCall {
  const char* name = "";            // "aclnnMhcPost"
  std::vector<TensorArg> tensors;   // single tensors
  std::vector<ListArg> lists = {};  // their members follow the single tensors in Views
  // Builds the arguments and calls the library's Prepare with CallContext().
  std::function<Status(const Views&, Plan*)> prepare;
  // The layout rule (BSND or TND) that the library itself does not have: index of a tensor that has
  // `inner` dimensions behind its tokens; -1: no such rule.
  int layout_tensor = -1;
  int inner = 0;
  // For the profile; called once everything else has passed.
  std::function<Facts(const Views&)> facts = {};
};

// What prepare gives to the library: messages name arguments as the C signatures do.
Context CallContext();

// Checks in the order null -> dtype -> format -> rank and shape -> attributes -> profile -> empty,
// sizes the workspace and makes the executor. Every failure leaves a message.
aclnnStatus MakeExecutor(const OpCall& call, std::uint64_t* workspace_size,
                         aclOpExecutor** executor) noexcept;

// Takes the executor (unless it is repeatable) and queues its plan. `name` is the phase-2 call.
aclnnStatus RunExecutor(const char* name, void* workspace, std::uint64_t workspace_size,
                        aclOpExecutor* executor, aclrtStream stream) noexcept;

}  // namespace anabranch::acl

#endif  // ANABRANCH_SRC_ACL_OP_FACE_H_
