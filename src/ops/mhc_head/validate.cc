#include "src/core/caught.h"
#include "src/core/check.h"
#include "src/core/mhc_check.h"
#include "src/ops/mhc_head/mhc_head.h"

namespace anabranch {
namespace {

constexpr char kForward[] = "mhc_head";
constexpr char kBackward[] = "mhc_head_backward";
constexpr Residual kForm = Residual::kNone;

}  // namespace

Status InferMhcHead(MhcHeadArgs* a) try {
  Checker c(kForward);
  c.Required("x", a->x);
  c.Required("fn", a->fn);
  c.Required("base", a->base);
  c.Required("scale", a->scale);
  c.Activation("x", a->x);
  c.Activations(a->x.dtype, {{"y", a->y}});
  c.Coefficients(a->x.dtype, {{"fn", a->fn},
                              {"base", a->base},
                              {"scale", a->scale},
                              {"inv_rms", a->inv_rms},
                              {"h_mix", a->h_mix},
                              {"w", a->w}});
  PreSizes s;
  s.FromX(c, a->x, kForm);
  s.Hidden(c, "y", a->y);
  s.PerStream(c, "h_mix", a->h_mix);
  s.PerStream(c, "w", a->w);
  s.PerToken(c, "inv_rms", a->inv_rms);
  s.Settle(c, kForm, false);
  s.Phi(c, "fn", a->fn);
  s.Rows(c, "base", a->base);
  PreSizes::Alpha(c, "scale", a->scale, 1);
  CheckPreOptions(c, a->options);
  if (!c.ok()) return c.status();
  const DType coefficient = Checker::CoefficientFor(a->x.dtype);
  SetOutput(&a->y, a->x.dtype, Concat(s.tokens, {s.d}));
  if (a->inv_rms.defined() || a->h_mix.defined() || a->w.defined()) {
    SetOutput(&a->inv_rms, coefficient, s.tokens);
    SetOutput(&a->h_mix, coefficient, Concat(s.tokens, {s.n}));
    SetOutput(&a->w, coefficient, Concat(s.tokens, {s.n}));
  }
  return Status();
} catch (...) {
  return Caught();
}

Status InferMhcHeadBackward(MhcHeadBackwardArgs* a) try {
  Checker c(kBackward);
  c.Required("grad_y", a->grad_y);
  c.Required("x", a->x);
  c.Required("fn", a->fn);
  c.Required("scale", a->scale);
  c.Required("inv_rms", a->inv_rms);
  c.Required("h_mix", a->h_mix);
  c.Required("w", a->w);
  c.Activation("x", a->x);
  c.Activations(a->x.dtype, {{"grad_y", a->grad_y}, {"grad_x", a->grad_x}});
  c.Coefficients(a->x.dtype, {{"fn", a->fn},
                              {"scale", a->scale},
                              {"inv_rms", a->inv_rms},
                              {"h_mix", a->h_mix},
                              {"w", a->w},
                              {"grad_fn", a->grad_fn},
                              {"grad_base", a->grad_base},
                              {"grad_scale", a->grad_scale}});
  PreSizes s;
  s.FromX(c, a->x, kForm);
  s.Hidden(c, "grad_y", a->grad_y);
  s.PerStream(c, "h_mix", a->h_mix);
  s.PerStream(c, "w", a->w);
  s.PerToken(c, "inv_rms", a->inv_rms);
  s.Streams(c, "grad_x", a->grad_x);
  s.Settle(c, kForm, false);
  s.Phi(c, "fn", a->fn);
  s.Phi(c, "grad_fn", a->grad_fn);
  s.Rows(c, "grad_base", a->grad_base);
  PreSizes::Alpha(c, "scale", a->scale, 1);
  PreSizes::Alpha(c, "grad_scale", a->grad_scale, 1);
  CheckPreOptions(c, a->options);
  if (!c.ok()) return c.status();
  const DType coefficient = Checker::CoefficientFor(a->x.dtype);
  SetOutput(&a->grad_x, a->x.dtype, Concat(s.tokens, {s.n, s.d}));
  SetOutput(&a->grad_fn, coefficient, {s.rows, s.k});
  SetOutput(&a->grad_base, coefficient, {s.rows});
  SetOutput(&a->grad_scale, coefficient, {1});
  return Status();
} catch (...) {
  return Caught();
}

Status Validate(const MhcHeadArgs& args) {
  Checker c(kForward);
  c.Required("x", args.x);
  c.Required("y", args.y);
  c.AllOrNone({{"inv_rms", args.inv_rms}, {"h_mix", args.h_mix}, {"w", args.w}});
  const NamedTensor inputs[] = {
      {"x", args.x}, {"fn", args.fn}, {"base", args.base}, {"scale", args.scale}};
  const NamedTensor outputs[] = {
      {"y", args.y}, {"inv_rms", args.inv_rms}, {"h_mix", args.h_mix}, {"w", args.w}};
  return c.Call(args, InferMhcHead, inputs, outputs);
}

Status Validate(const MhcHeadBackwardArgs& args) {
  Checker c(kBackward);
  c.Required("x", args.x);
  c.Required("grad_x", args.grad_x);
  c.Required("grad_fn", args.grad_fn);
  c.Required("grad_base", args.grad_base);
  c.Required("grad_scale", args.grad_scale);
  const NamedTensor inputs[] = {
      {"grad_y", args.grad_y},   {"x", args.x},         {"fn", args.fn}, {"scale", args.scale},
      {"inv_rms", args.inv_rms}, {"h_mix", args.h_mix}, {"w", args.w}};
  const NamedTensor outputs[] = {{"grad_x", args.grad_x},
                                 {"grad_fn", args.grad_fn},
                                 {"grad_base", args.grad_base},
                                 {"grad_scale", args.grad_scale}};
  return c.Call(args, InferMhcHeadBackward, inputs, outputs);
}

}  // namespace anabranch
