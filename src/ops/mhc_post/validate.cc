#include "src/core/caught.h"
#include "src/core/check.h"
#include "src/kernels/stream_mix.h"
#include "src/ops/mhc_post/mhc_post.h"

namespace anabranch {
namespace {

constexpr char kForward[] = "mhc_post";
constexpr char kBackward[] = "mhc_post_backward";

// What x says about the sizes of everything else; refined by the other tensors.
struct Sizes {
  Dims tokens;
  std::int64_t n = kUnknown;
  std::int64_t d = kUnknown;
};

void MatchStreams(Checker& c, const char* name, const TensorView& t, Sizes* s) {
  Dims inner{s->n, s->d};
  c.MatchesTokens(name, t, &s->tokens, &inner, "x");
  s->n = inner[0];
  s->d = inner[1];
}

void MatchHidden(Checker& c, const char* name, const TensorView& t, Sizes* s) {
  Dims inner{s->d};
  c.MatchesTokens(name, t, &s->tokens, &inner, "x");
  s->d = inner[0];
}

void MatchPost(Checker& c, const char* name, const TensorView& t, Sizes* s) {
  Dims inner{s->n};
  c.MatchesTokens(name, t, &s->tokens, &inner, "x");
  s->n = inner[0];
}

Sizes FromX(Checker& c, const TensorView& x) {
  c.Sane("x", x, 2, "[*, n, D]");
  Sizes s;
  if (!c.ok()) return s;
  s.tokens = LeadingDims(x, x.rank() - 2);
  s.n = x.sizes[x.rank() - 2];
  s.d = x.sizes[x.rank() - 1];
  c.InRange("x: n", s.n, 1, kMaxStreams);
  c.InRange("x: D", s.d, 1, INT64_MAX);
  return s;
}

}  // namespace

Status InferMhcPost(MhcPostArgs* a) try {
  Checker c(kForward);
  c.Required("x", a->x);
  c.Required("h_out", a->h_out);
  c.Required("h_post", a->h_post);
  c.Activation("x", a->x);
  c.Activations(a->x.dtype, {{"h_out", a->h_out}, {"y", a->y}});
  c.Coefficients(a->x.dtype, {{"h_res", a->h_res}, {"h_post", a->h_post}});
  Sizes s = FromX(c, a->x);
  c.MatchesMatrix("h_res", a->h_res, &s.tokens, &s.n, "x");
  MatchHidden(c, "h_out", a->h_out, &s);
  MatchPost(c, "h_post", a->h_post, &s);
  MatchStreams(c, "y", a->y, &s);
  if (!c.ok()) return c.status();
  SetOutput(&a->y, a->x.dtype, Concat(s.tokens, {s.n, s.d}));
  return Status();
} catch (...) {
  return Caught();
}

Status InferMhcPostBackward(MhcPostBackwardArgs* a) try {
  Checker c(kBackward);
  c.Required("grad_output", a->grad_output);
  c.Required("x", a->x);
  c.Required("h_out", a->h_out);
  c.Required("h_post", a->h_post);
  c.Activation("x", a->x);
  c.Activations(a->x.dtype, {{"grad_output", a->grad_output},
                             {"h_out", a->h_out},
                             {"grad_x", a->grad_x},
                             {"grad_h_out", a->grad_h_out}});
  c.Coefficients(a->x.dtype, {{"h_res", a->h_res},
                              {"h_post", a->h_post},
                              {"grad_h_res", a->grad_h_res},
                              {"grad_h_post", a->grad_h_post}});
  Sizes s = FromX(c, a->x);
  MatchStreams(c, "grad_output", a->grad_output, &s);
  c.MatchesMatrix("h_res", a->h_res, &s.tokens, &s.n, "x");
  MatchHidden(c, "h_out", a->h_out, &s);
  MatchPost(c, "h_post", a->h_post, &s);
  MatchStreams(c, "grad_x", a->grad_x, &s);
  c.MatchesMatrix("grad_h_res", a->grad_h_res, &s.tokens, &s.n, "x");
  MatchHidden(c, "grad_h_out", a->grad_h_out, &s);
  MatchPost(c, "grad_h_post", a->grad_h_post, &s);
  if (!c.ok()) return c.status();
  SetOutput(&a->grad_x, a->x.dtype, Concat(s.tokens, {s.n, s.d}));
  const DType coefficient = Checker::CoefficientFor(a->x.dtype);
  if (a->h_res.defined()) SetOutput(&a->grad_h_res, coefficient, a->h_res.sizes);
  SetOutput(&a->grad_h_out, a->x.dtype, Concat(s.tokens, {s.d}));
  SetOutput(&a->grad_h_post, coefficient, Concat(s.tokens, {s.n}));
  return Status();
} catch (...) {
  return Caught();
}

Status Validate(const MhcPostArgs& args) {
  Checker c(kForward);
  c.Required("x", args.x);
  c.Required("h_out", args.h_out);
  c.Required("h_post", args.h_post);
  c.Required("y", args.y);
  const NamedTensor inputs[] = {
      {"x", args.x}, {"h_res", args.h_res}, {"h_out", args.h_out}, {"h_post", args.h_post}};
  const NamedTensor outputs[] = {{"y", args.y, "x"}};
  return c.Call(args, InferMhcPost, inputs, outputs);
}

Status Validate(const MhcPostBackwardArgs& args) {
  Checker c(kBackward);
  c.Required("grad_output", args.grad_output);
  c.Required("x", args.x);
  c.Required("h_out", args.h_out);
  c.Required("h_post", args.h_post);
  c.Required("grad_x", args.grad_x);
  if (args.h_res.defined()) c.Required("grad_h_res", args.grad_h_res);
  c.Required("grad_h_out", args.grad_h_out);
  c.Required("grad_h_post", args.grad_h_post);
  const NamedTensor inputs[] = {{"grad_output", args.grad_output},
                                {"x", args.x},
                                {"h_res", args.h_res},
                                {"h_out", args.h_out},
                                {"h_post", args.h_post}};
  const NamedTensor outputs[] = {{"grad_x", args.grad_x, "grad_output"},
                                 {"grad_h_res", args.grad_h_res},
                                 {"grad_h_out", args.grad_h_out},
                                 {"grad_h_post", args.grad_h_post}};
  return c.Call(args, InferMhcPostBackward, inputs, outputs);
}

}  // namespace anabranch
