// The steps that every operator's Prepare has in common.
#ifndef ANABRANCH_SRC_OPS_PREPARE_H_
#define ANABRANCH_SRC_OPS_PREPARE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "anabranch/context.h"
#include "anabranch/plan.h"
#include "src/core/caught.h"
#include "src/core/context_face.h"
#include "src/core/plan_impl.h"
#include "src/core/resolve_target.h"

namespace anabranch {

// An operator's double-precision definition, and how many doubles of scratch memory it needs.
template <class Args>
struct Reference {
  Reference(void (*function)(const Args&))  // NOLINT(google-explicit-constructor)
      : plain(function) {}
  Reference(void (*function)(const Args&, double*), std::int64_t (*doubles)(const Args&))
      : with_scratch(function), scratch(doubles) {}

  void (*plain)(const Args&) = nullptr;
  void (*with_scratch)(const Args&, double* scratch) = nullptr;
  std::int64_t (*scratch)(const Args&) = nullptr;
};

// Runs an operator's double-precision definition; one thread.
template <class Args>
class ReferencePlan : public PlanImpl {
 public:
  ReferencePlan(const Args& args, const Reference<Args>& reference)
      : args_(args), reference_(reference) {
    if (reference.scratch != nullptr) {
      info.workspace_bytes = static_cast<std::size_t>(reference.scratch(args)) * sizeof(double);
    }
    info.kernel = "reference";
    info.why = "all tensors are float64";
    info.work_items = 1;
  }
  void Run(std::byte* workspace, const Context& /*context*/) const override {
    if (reference_.plain != nullptr) return reference_.plain(args_);
    reference_.with_scratch(args_, reinterpret_cast<double*>(workspace));
  }

 private:
  Args args_;
  Reference<Args> reference_;
};

// A plan that can say what it was made for; `shapes` keeps what it needs for that by value.
template <class Impl, class ShapesFunction>
class DescribedPlan final : public Impl {
 public:
  template <class... Args>
  explicit DescribedPlan(const ShapesFunction& shapes, const Args&... args)
      : Impl(args...), shapes_(shapes) {}
  std::string Shapes() const override { return shapes_(); }

 private:
  ShapesFunction shapes_;
};

// Validate(args), then a plan: an empty one when `main` (the operator's main activation) has no
// elements and `empty_is_done`, the reference for float64, else Kernel(args, target, context).
// `shapes()` gives the description of the arguments whenever it is asked for: it captures values.
template <class Kernel, class Args, class Shapes>
Status PreparePlan(const char* op, const Args& args, const TensorView& main, bool empty_is_done,
                   const std::type_identity_t<Reference<Args>>& reference, const Shapes& shapes,
                   Plan* plan, const Context& context) noexcept {
  try {
    if (Status status = Validate(args, ContextFace::Of(context)); !status.ok()) return status;
    std::unique_ptr<PlanImpl> impl;
    if (empty_is_done && main.numel() == 0) {
      impl = std::make_unique<DescribedPlan<EmptyPlan, Shapes>>(shapes);
    } else if (main.dtype == DType::kFloat64) {
      impl = std::make_unique<DescribedPlan<ReferencePlan<Args>, Shapes>>(shapes, args, reference);
    } else {
      Target target = Target::kAuto;
      const char* why = "";
      Status status = ResolveTarget(context.target(), &target, &why);
      if (!status.ok()) return Status(status.code(), std::string(op) + ": " + status.message());
      impl = std::make_unique<DescribedPlan<Kernel, Shapes>>(shapes, args, target, context);
      impl->info.why = why;
    }
    impl->info.op = op;
    *plan = Plan(std::move(impl));
    return Status();
  } catch (...) {
    return Caught();
  }
}

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_PREPARE_H_
