#include "src/core/caught.h"
#include "src/core/check.h"
#include "src/core/mhc_check.h"
#include "src/ops/mhc_pre/mhc_pre.h"

namespace anabranch {
namespace {

constexpr char kForward[] = "mhc_pre";
constexpr char kBackward[] = "mhc_pre_backward";

void CheckForm(Checker& c, Residual residual) {
  c.InRange("residual", static_cast<std::int64_t>(residual), 0,
            static_cast<std::int64_t>(Residual::kNone));
}

void AbsentWithoutResidual(Checker& c, const char* name, const TensorView& t, Residual residual) {
  if (c.ok() && residual == Residual::kNone && t.defined()) {
    c.Invalid(std::string(name) + " has shape " + ToString(t.sizes) +
              ", expected none (there is no residual part)");
  }
}

std::int64_t AlphaEntries(Residual residual) { return residual == Residual::kNone ? 2 : 3; }

Dims ResidualDims(const PreSizes& s, Residual residual) {
  if (residual == Residual::kMatrix) return Concat(s.tokens, {s.n, s.n});
  return Concat(s.tokens, {s.res});
}

}  // namespace

Status InferMhcPre(MhcPreArgs* a) try {
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
                              {"gamma", a->gamma},
                              {"h_post", a->h_post},
                              {"h_res", a->h_res},
                              {"inv_rms", a->inv_rms},
                              {"h_mix", a->h_mix},
                              {"h_pre", a->h_pre}});
  CheckForm(c, a->residual);
  AbsentWithoutResidual(c, "h_res", a->h_res, a->residual);
  PreSizes s;
  s.FromX(c, a->x, a->residual);
  s.Gamma(c, "gamma", a->gamma);
  s.Hidden(c, "h_in", a->h_in);
  s.PerStream(c, "h_post", a->h_post);
  s.PerStream(c, "h_pre", a->h_pre);
  s.PerToken(c, "inv_rms", a->inv_rms);
  s.Residuals(c, "h_res", a->h_res, a->residual);
  s.Settle(c, a->residual);
  s.Phi(c, "phi", a->phi);
  PreSizes::Alpha(c, "alpha", a->alpha, AlphaEntries(a->residual));
  s.Rows(c, "bias", a->bias);
  s.PerRow(c, "h_mix", a->h_mix);
  CheckPreOptions(c, a->options);
  if (!c.ok()) return c.status();
  const DType coefficient = Checker::CoefficientFor(a->x.dtype);
  SetOutput(&a->h_in, a->x.dtype, Concat(s.tokens, {s.d}));
  SetOutput(&a->h_post, coefficient, Concat(s.tokens, {s.n}));
  if (a->residual != Residual::kNone)
    SetOutput(&a->h_res, coefficient, ResidualDims(s, a->residual));
  if (a->inv_rms.defined() || a->h_mix.defined() || a->h_pre.defined()) {
    SetOutput(&a->inv_rms, coefficient, s.tokens);
    SetOutput(&a->h_mix, coefficient, Concat(s.tokens, {s.rows}));
    SetOutput(&a->h_pre, coefficient, Concat(s.tokens, {s.n}));
  }
  return Status();
} catch (...) {
  return Caught();
}

Status InferMhcPreBackward(MhcPreBackwardArgs* a) try {
  Checker c(kBackward);
  c.Required("x", a->x);
  c.Required("phi", a->phi);
  c.Required("alpha", a->alpha);
  c.Required("grad_h_in", a->grad_h_in);
  c.Required("grad_h_post", a->grad_h_post);
  if (a->residual != Residual::kNone) c.Required("grad_h_res", a->grad_h_res);
  c.Required("inv_rms", a->inv_rms);
  c.Required("h_mix", a->h_mix);
  c.Required("h_pre", a->h_pre);
  c.Required("h_post", a->h_post);
  c.Activation("x", a->x);
  c.Activations(
      a->x.dtype,
      {{"grad_h_in", a->grad_h_in}, {"grad_x_post", a->grad_x_post}, {"grad_x", a->grad_x}});
  c.Coefficients(a->x.dtype, {{"phi", a->phi},
                              {"alpha", a->alpha},
                              {"grad_h_post", a->grad_h_post},
                              {"grad_h_res", a->grad_h_res},
                              {"inv_rms", a->inv_rms},
                              {"h_mix", a->h_mix},
                              {"h_pre", a->h_pre},
                              {"h_post", a->h_post},
                              {"gamma", a->gamma},
                              {"grad_phi", a->grad_phi},
                              {"grad_alpha", a->grad_alpha},
                              {"grad_bias", a->grad_bias},
                              {"grad_gamma", a->grad_gamma}});
  CheckForm(c, a->residual);
  AbsentWithoutResidual(c, "grad_h_res", a->grad_h_res, a->residual);
  if (c.ok() && a->grad_gamma.defined() && !a->gamma.defined()) {
    c.Invalid("grad_gamma has shape " + ToString(a->grad_gamma.sizes) +
              ", expected none (gamma is absent)");
  }
  PreSizes s;
  s.FromX(c, a->x, a->residual);
  s.Gamma(c, "gamma", a->gamma);
  s.Gamma(c, "grad_gamma", a->grad_gamma);
  s.Hidden(c, "grad_h_in", a->grad_h_in);
  s.PerStream(c, "grad_h_post", a->grad_h_post);
  s.PerStream(c, "h_pre", a->h_pre);
  s.PerStream(c, "h_post", a->h_post);
  s.PerToken(c, "inv_rms", a->inv_rms);
  s.Streams(c, "grad_x_post", a->grad_x_post);
  s.Streams(c, "grad_x", a->grad_x);
  s.Residuals(c, "grad_h_res", a->grad_h_res, a->residual);
  s.Settle(c, a->residual);
  s.Phi(c, "phi", a->phi);
  s.Phi(c, "grad_phi", a->grad_phi);
  PreSizes::Alpha(c, "alpha", a->alpha, AlphaEntries(a->residual));
  PreSizes::Alpha(c, "grad_alpha", a->grad_alpha, AlphaEntries(a->residual));
  s.PerRow(c, "h_mix", a->h_mix);
  s.Rows(c, "grad_bias", a->grad_bias);
  CheckPreOptions(c, a->options);
  if (!c.ok()) return c.status();
  const DType coefficient = Checker::CoefficientFor(a->x.dtype);
  SetOutput(&a->grad_x, a->x.dtype, Concat(s.tokens, {s.n, s.d}));
  SetOutput(&a->grad_phi, coefficient, {s.rows, s.k});
  SetOutput(&a->grad_alpha, coefficient, {AlphaEntries(a->residual)});
  SetOutput(&a->grad_bias, coefficient, {s.rows});
  if (a->gamma.defined()) SetOutput(&a->grad_gamma, coefficient, {s.n, s.d});
  return Status();
} catch (...) {
  return Caught();
}

Status Validate(const MhcPreArgs& args) {
  Checker c(kForward);
  c.Required("x", args.x);
  c.Required("phi", args.phi);
  c.Required("alpha", args.alpha);
  c.Required("bias", args.bias);
  c.Required("h_in", args.h_in);
  c.Required("h_post", args.h_post);
  if (args.residual != Residual::kNone) c.Required("h_res", args.h_res);
  c.AllOrNone({{"inv_rms", args.inv_rms}, {"h_mix", args.h_mix}, {"h_pre", args.h_pre}});
  const NamedTensor inputs[] = {{"x", args.x},
                                {"phi", args.phi},
                                {"alpha", args.alpha},
                                {"bias", args.bias},
                                {"gamma", args.gamma}};
  const NamedTensor outputs[] = {{"h_in", args.h_in},   {"h_post", args.h_post},
                                 {"h_res", args.h_res}, {"inv_rms", args.inv_rms},
                                 {"h_mix", args.h_mix}, {"h_pre", args.h_pre}};
  return c.Call(args, InferMhcPre, inputs, outputs);
}

Status Validate(const MhcPreBackwardArgs& args) {
  Checker c(kBackward);
  c.Required("x", args.x);
  c.Required("grad_x", args.grad_x);
  c.Required("grad_phi", args.grad_phi);
  c.Required("grad_alpha", args.grad_alpha);
  c.Required("grad_bias", args.grad_bias);
  if (args.gamma.defined()) c.Required("grad_gamma", args.grad_gamma);
  const NamedTensor inputs[] = {{"x", args.x},
                                {"phi", args.phi},
                                {"alpha", args.alpha},
                                {"grad_h_in", args.grad_h_in},
                                {"grad_h_post", args.grad_h_post},
                                {"grad_h_res", args.grad_h_res},
                                {"inv_rms", args.inv_rms},
                                {"h_mix", args.h_mix},
                                {"h_pre", args.h_pre},
                                {"h_post", args.h_post},
                                {"gamma", args.gamma},
                                {"grad_x_post", args.grad_x_post}};
  const NamedTensor outputs[] = {{"grad_x", args.grad_x},
                                 {"grad_phi", args.grad_phi},
                                 {"grad_alpha", args.grad_alpha},
                                 {"grad_bias", args.grad_bias},
                                 {"grad_gamma", args.grad_gamma}};
  return c.Call(args, InferMhcPreBackward, inputs, outputs);
}

}  // namespace anabranch
