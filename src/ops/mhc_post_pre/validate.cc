#include "src/core/caught.h"
#include "src/core/check.h"
#include "src/core/mhc_check.h"
#include "src/ops/mhc_post_pre/mhc_post_pre.h"

namespace anabranch {
namespace {

constexpr char kOp[] = "mhc_post_pre";
constexpr Residual kForm = Residual::kMatrix;

void CheckTypes(Checker& c, const MhcPostPreArgs& a) {
  c.Activation("x", a.x);
  c.Activations(a.x.dtype, {{"h_out", a.h_out}, {"y", a.y}, {"h_in", a.h_in}});
  c.Coefficients(a.x.dtype, {{"h_res", a.h_res},
                             {"h_post", a.h_post},
                             {"phi", a.phi},
                             {"alpha", a.alpha},
                             {"bias", a.bias},
                             {"next_h_post", a.next_h_post},
                             {"next_h_res", a.next_h_res},
                             {"h_pre", a.h_pre},
                             {"h_mix", a.h_mix},
                             {"inv_rms", a.inv_rms},
                             {"sum_out", a.sum_out},
                             {"norm_out", a.norm_out}});
}

PreSizes CheckShapes(Checker& c, const MhcPostPreArgs& a) {
  PreSizes s;
  s.FromX(c, a.x, kForm);
  s.Residuals(c, "h_res", a.h_res, kForm);
  s.Hidden(c, "h_out", a.h_out);
  s.PerStream(c, "h_post", a.h_post);
  s.Streams(c, "y", a.y);
  s.Hidden(c, "h_in", a.h_in);
  s.PerStream(c, "next_h_post", a.next_h_post);
  s.Residuals(c, "next_h_res", a.next_h_res, kForm);
  s.PerStream(c, "h_pre", a.h_pre);
  s.PerTokenColumn(c, "inv_rms", a.inv_rms);
  s.Settle(c, kForm);
  s.Phi(c, "phi", a.phi);
  PreSizes::Alpha(c, "alpha", a.alpha, 3);
  s.Rows(c, "bias", a.bias);
  s.PerRow(c, "h_mix", a.h_mix);
  CheckIterations(c, a.options);
  s.Iterates(c, a.sum_out, a.norm_out, a.options.num_iters);
  CheckPreSinkhornOptions(c, a.options);
  return s;
}

}  // namespace

Status InferMhcPostPre(MhcPostPreArgs* a) try {
  Checker c(kOp);
  c.Required("x", a->x);
  c.Required("h_out", a->h_out);
  c.Required("h_post", a->h_post);
  c.Required("phi", a->phi);
  c.Required("alpha", a->alpha);
  c.Required("bias", a->bias);
  CheckTypes(c, *a);
  const PreSizes s = CheckShapes(c, *a);
  if (!c.ok()) return c.status();
  const DType coefficient = Checker::CoefficientFor(a->x.dtype);
  SetOutput(&a->y, a->x.dtype, Concat(s.tokens, {s.n, s.d}));
  SetOutput(&a->h_in, a->x.dtype, Concat(s.tokens, {s.d}));
  SetOutput(&a->next_h_post, coefficient, Concat(s.tokens, {s.n}));
  SetOutput(&a->next_h_res, coefficient, Concat(s.tokens, {s.n, s.n}));
  SetPreSinkhornCaches(s, a);
  return Status();
} catch (...) {
  return Caught();
}

Status Validate(const MhcPostPreArgs& args) {
  Checker c(kOp);
  c.Required("x", args.x);
  c.Required("y", args.y);
  c.Required("h_in", args.h_in);
  c.Required("next_h_post", args.next_h_post);
  c.Required("next_h_res", args.next_h_res);
  CheckCaches(c, {args.h_pre, args.h_mix, args.inv_rms, args.sum_out, args.norm_out});
  const NamedTensor inputs[] = {
      {"x", args.x},     {"h_res", args.h_res}, {"h_out", args.h_out}, {"h_post", args.h_post},
      {"phi", args.phi}, {"alpha", args.alpha}, {"bias", args.bias}};
  const NamedTensor outputs[] = {{"y", args.y, "x"},
                                 {"h_in", args.h_in},
                                 {"next_h_post", args.next_h_post},
                                 {"next_h_res", args.next_h_res},
                                 {"h_pre", args.h_pre},
                                 {"h_mix", args.h_mix},
                                 {"inv_rms", args.inv_rms},
                                 {"sum_out", args.sum_out},
                                 {"norm_out", args.norm_out}};
  return c.Call(args, InferMhcPostPre, inputs, outputs);
}

}  // namespace anabranch
