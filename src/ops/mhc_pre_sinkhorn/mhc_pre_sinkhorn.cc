// mhc_pre_sinkhorn: plan and run. The work is kernels/pre_forward, pre_backward and sinkhorn.
#include "src/ops/mhc_pre_sinkhorn/mhc_pre_sinkhorn.h"

#include "src/core/check.h"
#include "src/core/plan_impl.h"
#include "src/core/tokens.h"
#include "src/kernels/pre_backward.h"
#include "src/kernels/pre_forward.h"
#include "src/kernels/sinkhorn_stage.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

// inv_rms is [*] or [*, 1]: a token's first element either way.
TokenRows PerToken(const TensorView& view, const TensorView& x) {
  return view.defined() ? TokenRows(view, view.rank() - (x.rank() - 2)) : TokenRows();
}

TokenRows Matrices(const TensorView& view, const TensorView& x) {
  return TokenRows::Matrix(view, x.rank() - 2, x.sizes[x.rank() - 2]);
}

PreForwardTensors TensorsOf(const MhcPreSinkhornArgs& a) {
  PreForwardTensors t;
  t.x = a.x;
  t.phi = a.phi;
  t.alpha = a.alpha;
  t.bias = a.bias;
  t.h_in = a.h_in;
  t.h_post = TokenRows(a.h_post, 1);
  t.inv_rms = PerToken(a.inv_rms, a.x);
  t.h_mix = TokenRows(a.h_mix, 1);
  t.h_pre = TokenRows(a.h_pre, 1);
  t.norm_eps = static_cast<float>(a.options.norm_eps);
  t.hc_eps = static_cast<float>(a.options.pre_eps);
  t.post_multiplier = static_cast<float>(a.options.post_multiplier);
  return t;
}

PreBackwardTensors TensorsOf(const MhcPreSinkhornBackwardArgs& a) {
  PreBackwardTensors t;
  t.x = a.x;
  t.phi = a.phi;
  t.alpha = a.alpha;
  t.bias = a.bias;
  t.grad_h_in = a.grad_h_in;
  t.grad_h_post = TokenRows(a.grad_h_post, 1);
  t.inv_rms = PerToken(a.inv_rms, a.x);
  t.h_mix = TokenRows(a.h_mix, 1);
  t.h_pre = TokenRows(a.h_pre, 1);
  t.grad_x = a.grad_x;
  t.grad_phi = a.grad_phi;
  t.grad_alpha = a.grad_alpha;
  t.grad_bias = a.grad_bias;
  t.hc_eps = static_cast<float>(a.options.pre_eps);
  t.post_multiplier = static_cast<float>(a.options.post_multiplier);
  return t;
}

class ForwardPlan : public PlanImpl {
 public:
  ForwardPlan(const MhcPreSinkhornArgs& a, Target target, const Context& context)
      : stage_(PreSinkhornParams(a.options, PreSinkhornShape(a.x).n, a.options.num_iters),
               Matrices(a.h_res, a.x), TokenRows(), a.sum_out, a.norm_out, false, target),
        forward_(PreSinkhornShape(a.x), TensorsOf(a), &stage_, target, context, &info) {}
  void Run(std::byte* workspace, const Context& context) const override {
    forward_.Run(workspace, context);
  }

 private:
  SinkhornStage stage_;
  PreForward forward_;
};

class BackwardPlan : public PlanImpl {
 public:
  BackwardPlan(const MhcPreSinkhornBackwardArgs& a, Target target, const Context& context)
      : stage_(PreSinkhornParams(a.options, PreSinkhornShape(a.x).n, IterationsOf(a)), TokenRows(),
               Matrices(a.grad_h_res, a.x), a.sum_out, a.norm_out, true, target),
        backward_(PreSinkhornShape(a.x), TensorsOf(a), &stage_, target, context, &info) {}
  void Run(std::byte* workspace, const Context& context) const override {
    backward_.Run(workspace, context);
  }

 private:
  SinkhornStage stage_;
  PreBackward backward_;
};

}  // namespace

Status Prepare(const MhcPreSinkhornArgs& args, Plan* plan, const Context& context) {
  const char* caches = args.sum_out.defined() ? " with all caches"
                       : args.h_mix.defined() ? " with caches"
                                              : "";
  const auto shapes = [x = args.x, iterations = args.options.num_iters, caches] {
    return Describe("x", x) + std::to_string(iterations) + " iterations" + caches;
  };
  return PreparePlan<ForwardPlan>("mhc_pre_sinkhorn", args, args.x, true,
                                  {&MhcPreSinkhornReference, &MhcPreSinkhornScratch}, shapes, plan,
                                  context);
}

Status Prepare(const MhcPreSinkhornBackwardArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [x = args.x, iterations = IterationsOf(args),
                       cached = args.sum_out.defined()] {
    return Describe("x", x) + std::to_string(iterations) + " iterations" +
           (cached ? " cached" : " recomputed");
  };
  // No tokens still zero the parameter gradients: not an empty plan.
  return PreparePlan<BackwardPlan>(
      "mhc_pre_sinkhorn_backward", args, args.x, false,
      {&MhcPreSinkhornBackwardReference, &MhcPreSinkhornBackwardScratch}, shapes, plan, context);
}

}  // namespace anabranch
