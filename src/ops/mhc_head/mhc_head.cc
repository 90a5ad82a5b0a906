// mhc_head: plan and run. The work is kernels/pre_forward and pre_backward with pre rows alone.
#include "src/ops/mhc_head/mhc_head.h"

#include "src/core/check.h"
#include "src/core/plan_impl.h"
#include "src/core/tokens.h"
#include "src/kernels/pre_backward.h"
#include "src/kernels/pre_forward.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

PreForwardTensors TensorsOf(const MhcHeadArgs& a) {
  PreForwardTensors t;
  t.x = a.x;
  t.phi = a.fn;
  t.alpha = a.scale;
  t.bias = a.base;
  t.h_in = a.y;
  t.inv_rms = TokenRows(a.inv_rms, 0);
  t.h_mix = TokenRows(a.h_mix, 1);
  t.h_pre = TokenRows(a.w, 1);
  t.norm_eps = static_cast<float>(a.options.norm_eps);
  t.hc_eps = static_cast<float>(a.options.pre_eps);
  return t;
}

PreBackwardTensors TensorsOf(const MhcHeadBackwardArgs& a) {
  PreBackwardTensors t;
  t.x = a.x;
  t.phi = a.fn;
  t.alpha = a.scale;
  t.grad_h_in = a.grad_y;
  t.inv_rms = TokenRows(a.inv_rms, 0);
  t.h_mix = TokenRows(a.h_mix, 1);
  t.h_pre = TokenRows(a.w, 1);
  t.grad_x = a.grad_x;
  t.grad_phi = a.grad_fn;
  t.grad_alpha = a.grad_scale;
  t.grad_bias = a.grad_base;
  t.hc_eps = static_cast<float>(a.options.pre_eps);
  return t;
}

class ForwardPlan : public PlanImpl {
 public:
  ForwardPlan(const MhcHeadArgs& a, Target target, const Context& context)
      : forward_(StreamShape(a.x), TensorsOf(a), nullptr, target, context, &info) {}
  void Run(std::byte* workspace, const Context& context) const override {
    forward_.Run(workspace, context);
  }

 private:
  PreForward forward_;
};

class BackwardPlan : public PlanImpl {
 public:
  BackwardPlan(const MhcHeadBackwardArgs& a, Target target, const Context& context)
      : backward_(StreamShape(a.x), TensorsOf(a), nullptr, target, context, &info) {}
  void Run(std::byte* workspace, const Context& context) const override {
    backward_.Run(workspace, context);
  }

 private:
  PreBackward backward_;
};

}  // namespace

Status Prepare(const MhcHeadArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [x = args.x, caches = args.h_mix.defined()] {
    return Describe("x", x) + (caches ? "caches" : "");
  };
  return PreparePlan<ForwardPlan>("mhc_head", args, args.x, true, &MhcHeadReference, shapes, plan,
                                  context);
}

Status Prepare(const MhcHeadBackwardArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [x = args.x] { return Describe("x", x); };
  // No tokens still zero the parameter gradients: not an empty plan.
  return PreparePlan<BackwardPlan>("mhc_head_backward", args, args.x, false,
                                   &MhcHeadBackwardReference, shapes, plan, context);
}

}  // namespace anabranch
