// anabranch::mhc_pre and its backward for the dispatcher.
#include "anabranch/mhc_pre.h"

#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

struct Forward {
  using Args = MhcPreArgs;
  static constexpr char kName[] = "mhc_pre";
  static constexpr char kSchema[] =
      "mhc_pre(Tensor x, Tensor phi, Tensor alpha, Tensor bias, Tensor? gamma, float norm_eps, "
      "float hc_eps, int residual, int op_impl_mode, bool caches) -> (Tensor h_in, Tensor h_post, "
      "Tensor h_res, Tensor inv_rms, Tensor h_mix, Tensor h_pre)";
  static constexpr Input<Args> kInputs[] = {{"x", &Args::x},
                                            {"phi", &Args::phi},
                                            {"alpha", &Args::alpha},
                                            {"bias", &Args::bias},
                                            {"gamma", &Args::gamma}};
  static constexpr Output<Args> kOutputs[] = {&Args::h_in,    &Args::h_post, &Args::h_res,
                                              &Args::inv_rms, &Args::h_mix,  &Args::h_pre};
  static Status Infer(Args* args) { return InferMhcPre(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->options.norm_eps = values[0];
    args->options.hc_eps = values[1];
    args->residual = static_cast<Residual>(values[2]);
    args->options.op_impl_mode = static_cast<std::int64_t>(values[3]);
  }
  // What a backward needs: one of the three asks for all.
  static bool SetOptionalOutputs(Args* args, Attributes values) {
    if (values[4] == 0) return false;
    args->h_pre = TensorView(nullptr, args->h_post.dtype, args->h_post.sizes);
    return true;
  }
};

struct Backward {
  using Args = MhcPreBackwardArgs;
  static constexpr char kName[] = "mhc_pre_backward";
  static constexpr char kSchema[] =
      "mhc_pre_backward(Tensor x, Tensor phi, Tensor alpha, Tensor grad_h_in, Tensor grad_h_post, "
      "Tensor? grad_h_res, Tensor inv_rms, Tensor h_mix, Tensor h_pre, Tensor h_post, "
      "Tensor? gamma, Tensor? grad_x_post, float hc_eps, int residual, int op_impl_mode) -> "
      "(Tensor grad_x, Tensor grad_phi, Tensor grad_alpha, Tensor grad_bias, Tensor grad_gamma)";
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
  static Status Infer(Args* args) { return InferMhcPreBackward(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->options.hc_eps = values[0];
    args->residual = static_cast<Residual>(values[1]);
    args->options.op_impl_mode = static_cast<std::int64_t>(values[2]);
  }
};

const bool registered = RegisterInfer<Forward>() && RegisterInfer<Backward>();

}  // namespace
}  // namespace anabranch::torch_face

STABLE_TORCH_LIBRARY_FRAGMENT(anabranch, m) {
  using namespace anabranch::torch_face;
  Define<Forward>(m);
  Define<Backward>(m);
}

STABLE_TORCH_LIBRARY_IMPL(anabranch, CPU, m) {
  using namespace anabranch::torch_face;
  Implement<Forward>(m);
  Implement<Backward>(m);
}
