// anabranch::mhc_pre and its backward for the dispatcher.
#include "anabranch/mhc_pre.h"

#include <tuple>

#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

struct Forward {
  using Args = MhcPreArgs;
  static constexpr char kName[] = "mhc_pre";
  static constexpr Input<Args> kInputs[] = {{"x", &Args::x},
                                            {"phi", &Args::phi},
                                            {"alpha", &Args::alpha},
                                            {"bias", &Args::bias},
                                            {"gamma", &Args::gamma}};
  static constexpr Output<Args> kOutputs[] = {&Args::h_in,    &Args::h_post, &Args::h_res,
                                              &Args::inv_rms, &Args::h_mix,  &Args::h_pre};
  static constexpr std::size_t kAttributes = 5;
  static Status Infer(Args* args) { return InferMhcPre(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->options.norm_eps = values[0];
    args->options.hc_eps = values[1];
    args->residual = static_cast<Residual>(values[2]);
    args->options.op_impl_mode = static_cast<std::int64_t>(values[3]);
  }
  // What a backward needs: one of the three asks for all.
  static void SetOptionalOutputs(Args* args, Attributes values) {
    if (values[4] == 0) return;
    args->h_pre = TensorView(nullptr, args->h_post.dtype, args->h_post.sizes);
  }
};

struct Backward {
  using Args = MhcPreBackwardArgs;
  static constexpr char kName[] = "mhc_pre_backward";
  static constexpr Input<Args> kInputs[] = {
      {"x", &Args::x},
      {"phi", &Args::phi},
      {"alpha", &Args::alpha},
      {"grad_h_in", &Args::grad_h_in},
      {"grad_h_post", &Args::grad_h_post},
      {"grad_h_res", &Args::grad_h_res},
      {"inv_rms", &Args::inv_rms},
      {"h_mix", &Args::h_mix},
      {"h_pre", &Args::h_pre},
      {"h_post", &Args::h_post},
      {"gamma", &Args::gamma},
      {"grad_x_post", &Args::grad_x_post},
  };
  static constexpr Output<Args> kOutputs[] = {&Args::grad_x, &Args::grad_phi, &Args::grad_alpha,
                                              &Args::grad_bias, &Args::grad_gamma};
  static constexpr std::size_t kAttributes = 3;
  static Status Infer(Args* args) { return InferMhcPreBackward(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->options.hc_eps = values[0];
    args->residual = static_cast<Residual>(values[1]);
    args->options.op_impl_mode = static_cast<std::int64_t>(values[2]);
  }
};

const bool registered = RegisterInfer<Forward>() && RegisterInfer<Backward>();

Tensors<6> MhcPre(const Tensor& x, const Tensor& phi, const Tensor& alpha, const Tensor& bias,
                  const std::optional<Tensor>& gamma, double norm_eps, double hc_eps,
                  std::int64_t residual, std::int64_t op_impl_mode, bool caches) {
  const double attributes[] = {norm_eps, hc_eps, static_cast<double>(residual),
                               static_cast<double>(op_impl_mode), caches ? 1.0 : 0.0};
  return AsTuple<6>(RunCall<Forward>({&x, &phi, &alpha, &bias, Optional(gamma)}, attributes));
}

Tensors<5> MhcPreBackward(const Tensor& x, const Tensor& phi, const Tensor& alpha,
                          const Tensor& grad_h_in, const Tensor& grad_h_post,
                          const std::optional<Tensor>& grad_h_res, const Tensor& inv_rms,
                          const Tensor& h_mix, const Tensor& h_pre, const Tensor& h_post,
                          const std::optional<Tensor>& gamma,
                          const std::optional<Tensor>& grad_x_post, double hc_eps,
                          std::int64_t residual, std::int64_t op_impl_mode) {
  const double attributes[] = {hc_eps, static_cast<double>(residual),
                               static_cast<double>(op_impl_mode)};
  return AsTuple<5>(
      RunCall<Backward>({&x, &phi, &alpha, &grad_h_in, &grad_h_post, Optional(grad_h_res), &inv_rms,
                         &h_mix, &h_pre, &h_post, Optional(gamma), Optional(grad_x_post)},
                        attributes));
}

}  // namespace
}  // namespace anabranch::torch_face

STABLE_TORCH_LIBRARY_FRAGMENT(anabranch, m) {
  m.def(
      "mhc_pre(Tensor x, Tensor phi, Tensor alpha, Tensor bias, Tensor? gamma, float norm_eps, "
      "float hc_eps, int residual, int op_impl_mode, bool caches) -> (Tensor h_in, Tensor h_post, "
      "Tensor h_res, Tensor inv_rms, Tensor h_mix, Tensor h_pre)");
  m.def(
      "mhc_pre_backward(Tensor x, Tensor phi, Tensor alpha, Tensor grad_h_in, Tensor grad_h_post, "
      "Tensor? grad_h_res, Tensor inv_rms, Tensor h_mix, Tensor h_pre, Tensor h_post, "
      "Tensor? gamma, Tensor? grad_x_post, float hc_eps, int residual, int op_impl_mode) -> "
      "(Tensor grad_x, Tensor grad_phi, Tensor grad_alpha, Tensor grad_bias, Tensor grad_gamma)");
}

STABLE_TORCH_LIBRARY_IMPL(anabranch, CPU, m) {
  m.impl("mhc_pre", TORCH_BOX(&anabranch::torch_face::MhcPre));
  m.impl("mhc_pre_backward", TORCH_BOX(&anabranch::torch_face::MhcPreBackward));
}
