// What an operator derives from to make a Plan.
#ifndef ANABRANCH_SRC_CORE_PLAN_IMPL_H_
#define ANABRANCH_SRC_CORE_PLAN_IMPL_H_

#include <cstddef>
#include <memory>
#include <string>

#include "anabranch/plan.h"

namespace anabranch {

class PlanImpl {
 public:
  virtual ~PlanImpl() = default;

  // Computes with a workspace that has been checked. Must not allocate. Throws only what the
  // context's parallel_for throws.
  virtual void Run(std::byte* workspace, const Context& context) const = 0;

  // "x=(1, 8, 4, 64) bfloat16 ...": made when somebody wants to read it.
  virtual std::string Shapes() const = 0;

  PlanInfo info;
};

// For outputs without elements: runs, does nothing.
class EmptyPlan : public PlanImpl {
 public:
  EmptyPlan() {
    info.kernel = "empty";
    info.why = "the outputs have no elements";
  }
  void Run(std::byte* /*workspace*/, const Context& /*context*/) const override {}
};

inline constexpr std::size_t kWorkspaceAlignment = 64;

// Rounds a part of a workspace up so that the next part is aligned.
constexpr std::size_t AlignUp(std::size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

}  // namespace anabranch

#endif  // ANABRANCH_SRC_CORE_PLAN_IMPL_H_
