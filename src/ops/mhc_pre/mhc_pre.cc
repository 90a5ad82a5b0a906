// mhc_pre: plan and run. The work is kernels/pre_forward and pre_backward.
#include "src/ops/mhc_pre/mhc_pre.h"

#include "src/core/check.h"
#include "src/core/plan_impl.h"
#include "src/core/sizes.h"
#include "src/core/tokens.h"
#include "src/kernels/pre_backward.h"
#include "src/kernels/pre_forward.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

PreShape ShapeOf(const TensorView& x, Residual residual) {
  PreShape s = StreamShape(x);
  s.post = s.n;
  s.res = static_cast<int>(ResidualSize(residual, s.n));
  return s;
}

// The residual part as rows of `columns` elements.
TokenRows ResidualRows(const TensorView& view, int leading, std::int64_t columns) {
  return TokenRows::Matrix(view, leading, columns);
}

std::int64_t ResidualColumns(const PreShape& shape, Residual residual) {
  return residual == Residual::kMatrix ? shape.n : std::max(shape.res, 1);
}

PreForwardTensors ForwardTensors(const MhcPreArgs& a, const PreShape& shape) {
  const int leading = a.x.rank() - 2;
  PreForwardTensors t;
  t.x = a.x;
  t.phi = a.phi;
  t.alpha = a.alpha;
  t.bias = a.bias;
  t.gamma = a.gamma;
  t.h_in = a.h_in;
  t.h_post = TokenRows(a.h_post, 1);
  t.res_columns = ResidualColumns(shape, a.residual);
  t.h_res = ResidualRows(a.h_res, leading, t.res_columns);
  t.inv_rms = TokenRows(a.inv_rms, 0);
  t.h_mix = TokenRows(a.h_mix, 1);
  t.h_pre = TokenRows(a.h_pre, 1);
  t.norm_eps = static_cast<float>(a.options.norm_eps);
  t.hc_eps = static_cast<float>(a.options.pre_eps);
  t.post_multiplier = static_cast<float>(a.options.post_multiplier);
  return t;
}

PreBackwardTensors BackwardTensors(const MhcPreBackwardArgs& a, const PreShape& shape) {
  const int leading = a.x.rank() - 2;
  PreBackwardTensors t;
  t.x = a.x;
  t.phi = a.phi;
  t.alpha = a.alpha;
  t.gamma = a.gamma;
  t.grad_h_in = a.grad_h_in;
  t.grad_x_post = a.grad_x_post;
  t.grad_h_post = TokenRows(a.grad_h_post, 1);
  t.res_columns = ResidualColumns(shape, a.residual);
  t.grad_h_res = ResidualRows(a.grad_h_res, leading, t.res_columns);
  t.inv_rms = TokenRows(a.inv_rms, 0);
  t.h_mix = TokenRows(a.h_mix, 1);
  t.h_pre = TokenRows(a.h_pre, 1);
  t.h_post = TokenRows(a.h_post, 1);
  t.grad_x = a.grad_x;
  t.grad_phi = a.grad_phi;
  t.grad_alpha = a.grad_alpha;
  t.grad_bias = a.grad_bias;
  t.grad_gamma = a.grad_gamma;
  t.hc_eps = static_cast<float>(a.options.pre_eps);
  t.post_multiplier = static_cast<float>(a.options.post_multiplier);
  return t;
}

class ForwardPlan : public PlanImpl {
 public:
  ForwardPlan(const MhcPreArgs& a, Target target, const Context& context)
      : forward_(ShapeOf(a.x, a.residual), ForwardTensors(a, ShapeOf(a.x, a.residual)), nullptr,
                 target, context, &info) {}
  void Run(std::byte* workspace, const Context& context) const override {
    forward_.Run(workspace, context);
  }

 private:
  PreForward forward_;
};

class BackwardPlan : public PlanImpl {
 public:
  BackwardPlan(const MhcPreBackwardArgs& a, Target target, const Context& context)
      : backward_(ShapeOf(a.x, a.residual), BackwardTensors(a, ShapeOf(a.x, a.residual)), nullptr,
                  target, context, &info) {}
  void Run(std::byte* workspace, const Context& context) const override {
    backward_.Run(workspace, context);
  }

 private:
  PreBackward backward_;
};

const char* FormName(Residual residual) {
  if (residual == Residual::kMatrix) return "matrix ";
  return residual == Residual::kPermutation ? "permutation " : "no residual part ";
}

}  // namespace

Status Prepare(const MhcPreArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [x = args.x, gamma = args.gamma, residual = args.residual,
                       caches = args.h_mix.defined()] {
    return Describe("x", x) + FormName(residual) + Describe("gamma", gamma) +
           (caches ? "caches" : "");
  };
  return PreparePlan<ForwardPlan>("mhc_pre", args, args.x, true, &MhcPreReference, shapes, plan,
                                  context);
}

Status Prepare(const MhcPreBackwardArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [x = args.x, gamma = args.gamma, residual = args.residual,
                       added = args.grad_x_post.defined()] {
    return Describe("x", x) + FormName(residual) + Describe("gamma", gamma) +
           (added ? "grad_x_post" : "");
  };
  // No tokens still zero the parameter gradients: not an empty plan.
  return PreparePlan<BackwardPlan>("mhc_pre_backward", args, args.x, false,
                                   &MhcPreBackwardReference, shapes, plan, context);
}

}  // namespace anabranch
