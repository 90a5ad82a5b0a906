// anabranch::mhc_pre_sinkhorn and its backward for the dispatcher.
#include "anabranch/mhc_pre_sinkhorn.h"

#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

struct Forward {
  using Args = MhcPreSinkhornArgs;
  static constexpr char kName[] = "mhc_pre_sinkhorn";
  static constexpr Input<Args> kInputs[] = {
      {"x", &Args::x}, {"phi", &Args::phi}, {"alpha", &Args::alpha}, {"bias", &Args::bias}};
  static constexpr Output<Args> kOutputs[] = {&Args::h_in,    &Args::h_post,  &Args::h_res,
                                              &Args::h_pre,   &Args::h_mix,   &Args::inv_rms,
                                              &Args::sum_out, &Args::norm_out};
  static constexpr std::size_t kAttributes = 5;
  static Status Infer(Args* args) { return InferMhcPreSinkhorn(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->options.num_iters = static_cast<std::int64_t>(values[0]);
    args->options.hc_eps = values[1];
    args->options.norm_eps = values[2];
  }
  static void SetOptionalOutputs(Args* args, Attributes values) {
    const bool caches = values[3] != 0;
    const bool iterates = values[4] != 0;
    if (!caches && !iterates) return;
    const DType dtype = args->h_post.dtype;
    const Dims& per_stream = args->h_post.sizes;  // [*, n]
    const std::int64_t n = per_stream[per_stream.rank - 1];
    args->h_pre = TensorView(nullptr, dtype, per_stream);
    Dims per_token = per_stream;
    per_token[per_token.rank - 1] = 1;
    args->inv_rms = TensorView(nullptr, dtype, per_token);
    if (!iterates) return;
    const std::int64_t elements = NumElements(per_token);
    args->sum_out = TensorView(nullptr, dtype, {2 * args->options.num_iters, elements, n});
    args->norm_out = TensorView(nullptr, dtype, {2 * args->options.num_iters, elements, n, n});
  }
};

struct Backward {
  using Args = MhcPreSinkhornBackwardArgs;
  static constexpr char kName[] = "mhc_pre_sinkhorn_backward";
  static constexpr Input<Args> kInputs[] = {{"grad_h_in", &Args::grad_h_in},
                                            {"grad_h_post", &Args::grad_h_post},
                                            {"grad_h_res", &Args::grad_h_res},
                                            {"x", &Args::x},
                                            {"phi", &Args::phi},
                                            {"alpha", &Args::alpha},
                                            {"bias", &Args::bias},
                                            {"h_pre", &Args::h_pre},
                                            {"hc_before_norm", &Args::h_mix},
                                            {"inv_rms", &Args::inv_rms},
                                            {"sum_out", &Args::sum_out},
                                            {"norm_out", &Args::norm_out}};
  static constexpr Output<Args> kOutputs[] = {&Args::grad_x, &Args::grad_phi, &Args::grad_alpha,
                                              &Args::grad_bias};
  static constexpr std::size_t kAttributes = 2;
  static Status Infer(Args* args) { return InferMhcPreSinkhornBackward(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->options.num_iters = static_cast<std::int64_t>(values[0]);
    args->options.hc_eps = values[1];
  }
};

const bool registered = RegisterInfer<Forward>() && RegisterInfer<Backward>();

Tensors<8> MhcPreSinkhorn(const Tensor& x, const Tensor& phi, const Tensor& alpha,
                          const Tensor& bias, std::int64_t num_iters, double hc_eps,
                          double norm_eps, bool caches, bool iterates) {
  const double attributes[] = {static_cast<double>(num_iters), hc_eps, norm_eps, caches ? 1.0 : 0.0,
                               iterates ? 1.0 : 0.0};
  return AsTuple<8>(RunCall<Forward>({&x, &phi, &alpha, &bias}, attributes));
}

Tensors<4> MhcPreSinkhornBackward(const Tensor& grad_h_in, const Tensor& grad_h_post,
                                  const Tensor& grad_h_res, const Tensor& x, const Tensor& phi,
                                  const Tensor& alpha, const Tensor& bias, const Tensor& h_pre,
                                  const Tensor& hc_before_norm, const Tensor& inv_rms,
                                  const std::optional<Tensor>& sum_out,
                                  const std::optional<Tensor>& norm_out, std::int64_t num_iters,
                                  double hc_eps) {
  const double attributes[] = {static_cast<double>(num_iters), hc_eps};
  return AsTuple<4>(
      RunCall<Backward>({&grad_h_in, &grad_h_post, &grad_h_res, &x, &phi, &alpha, &bias, &h_pre,
                         &hc_before_norm, &inv_rms, Optional(sum_out), Optional(norm_out)},
                        attributes));
}

}  // namespace
}  // namespace anabranch::torch_face

STABLE_TORCH_LIBRARY_FRAGMENT(anabranch, m) {
  m.def(
      "mhc_pre_sinkhorn(Tensor x, Tensor phi, Tensor alpha, Tensor bias, int num_iters, "
      "float hc_eps, float norm_eps, bool caches, bool iterates) -> (Tensor h_in, Tensor h_post, "
      "Tensor h_res, Tensor h_pre, Tensor hc_before_norm, Tensor inv_rms, Tensor sum_out, "
      "Tensor norm_out)");
  m.def(
      "mhc_pre_sinkhorn_backward(Tensor grad_h_in, Tensor grad_h_post, Tensor grad_h_res, "
      "Tensor x, Tensor phi, Tensor alpha, Tensor bias, Tensor h_pre, Tensor hc_before_norm, "
      "Tensor inv_rms, Tensor? sum_out, Tensor? norm_out, int num_iters, float hc_eps) -> "
      "(Tensor grad_x, Tensor grad_phi, Tensor grad_alpha, Tensor grad_bias)");
}

STABLE_TORCH_LIBRARY_IMPL(anabranch, CPU, m) {
  m.impl("mhc_pre_sinkhorn", TORCH_BOX(&anabranch::torch_face::MhcPreSinkhorn));
  m.impl("mhc_pre_sinkhorn_backward", TORCH_BOX(&anabranch::torch_face::MhcPreSinkhornBackward));
}
