// aclOpExecutor: a checked call, its plan, and what is needed to plan it again for other addresses.
#ifndef ANABRANCH_SRC_ACL_EXECUTOR_H_
#define ANABRANCH_SRC_ACL_EXECUTOR_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "aclnn/aclnn_base.h"
#include "anabranch/plan.h"
#include "anabranch/tensor.h"
#include "src/acl/object.h"

namespace anabranch::acl {

// One tensor or list argument of a call: where its views lie.
struct Parameter {
  std::string name;
  bool list = false;
  bool output = false;
  std::size_t first = 0;  // index of its first view
  std::size_t count = 0;  // views it has: 1 for a tensor, the members for a list
};

}  // namespace anabranch::acl

struct aclOpExecutor final : anabranch::acl::Object {
  static constexpr anabranch::acl::Kind kKind = anabranch::acl::Kind::kExecutor;
  aclOpExecutor() : Object(kKind) {}

  std::string call;                                  // the phase-2 name that it belongs to
  std::vector<anabranch::acl::Parameter> arguments;  // in the order of the signature
  std::function<anabranch::Status(const std::vector<anabranch::TensorView>&, anabranch::Plan*)>
      prepare;

  std::mutex mutex;  // of what follows
  std::vector<anabranch::TensorView> views;
  // Null after an address was set: the next phase 2 plans again, once for all new addresses, so
  // that buffers can be exchanged one by one. Queued work keeps the plan that it was queued with.
  std::shared_ptr<const anabranch::Plan> plan;
  bool repeatable = false;
};

#endif  // ANABRANCH_SRC_ACL_EXECUTOR_H_
