#include "src/core/caught.h"
#include "src/core/check.h"
#include "src/core/mhc_check.h"
#include "src/ops/mhc_pre_sinkhorn/mhc_pre_sinkhorn.h"

namespace anabranch {
namespace {

constexpr char kForward[] = "mhc_pre_sinkhorn";
constexpr char kBackward[] = "mhc_pre_sinkhorn_backward";
constexpr Residual kForm = Residual::kMatrix;

}  // namespace

std::int64_t IterationsOf(const MhcPreSinkhornBackwardArgs& args) {
  return args.sum_out.defined() ? args.sum_out.sizes[0] / 2 : args.options.num_iters;
}

Status InferMhcPreSinkhorn(MhcPreSinkhornArgs* a) try {
  Checker c(kForward);
  c.Required("x", a->x);
  c.Required("phi", a->phi);
  c.Required("alpha", a->alpha);
  c.Required("bias", a->bias);
  c.Activation("x", a->x);
  c.Activations(a->x.dtype, {{"h_in", a->h_in}});
  c.Coefficients(a->x.dtype, {{"phi", a->phi},
                              {"alpha", a->alpha},
                              {"bias", a->bias},
                              {"h_post", a->h_post},
                              {"h_res", a->h_res},
                              {"h_pre", a->h_pre},
                              {"h_mix", a->h_mix},
                              {"inv_rms", a->inv_rms},
                              {"sum_out", a->sum_out},
                              {"norm_out", a->norm_out}});
  PreSizes s;
  s.FromX(c, a->x, kForm);
  s.Hidden(c, "h_in", a->h_in);
  s.PerStream(c, "h_post", a->h_post);
  s.Residuals(c, "h_res", a->h_res, kForm);
  s.PerStream(c, "h_pre", a->h_pre);
  s.PerTokenColumn(c, "inv_rms", a->inv_rms);
  s.Settle(c, kForm);
  s.Phi(c, "phi", a->phi);
  PreSizes::Alpha(c, "alpha", a->alpha, 3);
  s.Rows(c, "bias", a->bias);
  s.PerRow(c, "h_mix", a->h_mix);
  CheckIterations(c, a->options);
  s.Iterates(c, a->sum_out, a->norm_out, a->options.num_iters);
  CheckPreSinkhornOptions(c, a->options);
  if (!c.ok()) return c.status();
  const DType coefficient = Checker::CoefficientFor(a->x.dtype);
  SetOutput(&a->h_in, a->x.dtype, Concat(s.tokens, {s.d}));
  SetOutput(&a->h_post, coefficient, Concat(s.tokens, {s.n}));
  SetOutput(&a->h_res, coefficient, Concat(s.tokens, {s.n, s.n}));
  SetPreSinkhornCaches(s, a);
  return Status();
} catch (...) {
  return Caught();
}

Status InferMhcPreSinkhornBackward(MhcPreSinkhornBackwardArgs* a) try {
  Checker c(kBackward);
  c.Required("grad_h_in", a->grad_h_in);
  c.Required("grad_h_post", a->grad_h_post);
  c.Required("grad_h_res", a->grad_h_res);
  c.Required("x", a->x);
  c.Required("phi", a->phi);
  c.Required("alpha", a->alpha);
  c.Required("bias", a->bias);
  c.Required("h_pre", a->h_pre);
  c.Required("h_mix", a->h_mix);
  c.Required("inv_rms", a->inv_rms);
  c.Activation("x", a->x);
  c.Activations(a->x.dtype, {{"grad_h_in", a->grad_h_in}, {"grad_x", a->grad_x}});
  c.Coefficients(a->x.dtype, {{"grad_h_post", a->grad_h_post},
                              {"grad_h_res", a->grad_h_res},
                              {"phi", a->phi},
                              {"alpha", a->alpha},
                              {"bias", a->bias},
                              {"h_pre", a->h_pre},
                              {"h_mix", a->h_mix},
                              {"inv_rms", a->inv_rms},
                              {"sum_out", a->sum_out},
                              {"norm_out", a->norm_out},
                              {"grad_phi", a->grad_phi},
                              {"grad_alpha", a->grad_alpha},
                              {"grad_bias", a->grad_bias}});
  CheckTogether(c, a->sum_out, a->norm_out);
  PreSizes s;
  s.FromX(c, a->x, kForm);
  s.Hidden(c, "grad_h_in", a->grad_h_in);
  s.PerStream(c, "grad_h_post", a->grad_h_post);
  s.Residuals(c, "grad_h_res", a->grad_h_res, kForm);
  s.PerStream(c, "h_pre", a->h_pre);
  s.PerTokenColumn(c, "inv_rms", a->inv_rms);
  s.Streams(c, "grad_x", a->grad_x);
  s.Settle(c, kForm);
  s.Phi(c, "phi", a->phi);
  s.Phi(c, "grad_phi", a->grad_phi);
  PreSizes::Alpha(c, "alpha", a->alpha, 3);
  PreSizes::Alpha(c, "grad_alpha", a->grad_alpha, 3);
  s.Rows(c, "bias", a->bias);
  s.Rows(c, "grad_bias", a->grad_bias);
  s.PerRow(c, "h_mix", a->h_mix);
  s.Iterates(c, a->sum_out, a->norm_out, kUnknown);
  if (a->sum_out.defined()) {
    const std::int64_t steps = a->sum_out.sizes[0];
    if (c.ok() && steps != kUnknown && (steps < 2 || steps % 2 != 0)) {
      c.Invalid("sum_out has shape " + ToString(a->sum_out.sizes) +
                ", expected an even number of normalisations, at least 2");
    }
  } else {
    CheckIterations(c, a->options);
  }
  CheckPreSinkhornOptions(c, a->options);
  if (!c.ok()) return c.status();
  const DType coefficient = Checker::CoefficientFor(a->x.dtype);
  SetOutput(&a->grad_x, a->x.dtype, Concat(s.tokens, {s.n, s.d}));
  SetOutput(&a->grad_phi, coefficient, {s.rows, s.k});
  SetOutput(&a->grad_alpha, coefficient, {3});
  SetOutput(&a->grad_bias, coefficient, {s.rows});
  return Status();
} catch (...) {
  return Caught();
}

Status Validate(const MhcPreSinkhornArgs& args) {
  Checker c(kForward);
  c.Required("x", args.x);
  c.Required("h_in", args.h_in);
  c.Required("h_post", args.h_post);
  c.Required("h_res", args.h_res);
  CheckCaches(c, {args.h_pre, args.h_mix, args.inv_rms, args.sum_out, args.norm_out});
  const NamedTensor inputs[] = {
      {"x", args.x}, {"phi", args.phi}, {"alpha", args.alpha}, {"bias", args.bias}};
  const NamedTensor outputs[] = {{"h_in", args.h_in},       {"h_post", args.h_post},
                                 {"h_res", args.h_res},     {"h_pre", args.h_pre},
                                 {"h_mix", args.h_mix},     {"inv_rms", args.inv_rms},
                                 {"sum_out", args.sum_out}, {"norm_out", args.norm_out}};
  return c.Call(args, InferMhcPreSinkhorn, inputs, outputs);
}

Status Validate(const MhcPreSinkhornBackwardArgs& args) {
  Checker c(kBackward);
  c.Required("x", args.x);
  c.Required("grad_x", args.grad_x);
  c.Required("grad_phi", args.grad_phi);
  c.Required("grad_alpha", args.grad_alpha);
  c.Required("grad_bias", args.grad_bias);
  const NamedTensor inputs[] = {{"grad_h_in", args.grad_h_in},
                                {"grad_h_post", args.grad_h_post},
                                {"grad_h_res", args.grad_h_res},
                                {"x", args.x},
                                {"phi", args.phi},
                                {"alpha", args.alpha},
                                {"bias", args.bias},
                                {"h_pre", args.h_pre},
                                {"h_mix", args.h_mix},
                                {"inv_rms", args.inv_rms},
                                {"sum_out", args.sum_out},
                                {"norm_out", args.norm_out}};
  const NamedTensor outputs[] = {{"grad_x", args.grad_x},
                                 {"grad_phi", args.grad_phi},
                                 {"grad_alpha", args.grad_alpha},
                                 {"grad_bias", args.grad_bias}};
  return c.Call(args, InferMhcPreSinkhornBackward, inputs, outputs);
}

}  // namespace anabranch
