// anabranch::mhc_pre_sinkhorn and its backward for the dispatcher.
#include "anabranch/mhc_pre_sinkhorn.h"

#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

struct Forward {
  using Args = MhcPreSinkhornArgs;
  static constexpr char kName[] = "mhc_pre_sinkhorn";
  static constexpr char kSchema[] =
      "mhc_pre_sinkhorn(Tensor x, Tensor phi, Tensor alpha, Tensor bias, int num_iters, "
      "float hc_eps, float norm_eps, bool caches, bool iterates) -> (Tensor h_in, Tensor h_post, "
      "Tensor h_res, Tensor h_pre, Tensor hc_before_norm, Tensor inv_rms, Tensor sum_out, "
      "Tensor norm_out)";
  static constexpr Input<Args> kInputs[] = {
      {"x", &Args::x}, {"phi", &Args::phi}, {"alpha", &Args::alpha}, {"bias", &Args::bias}};
  static constexpr Output<Args> kOutputs[] = {&Args::h_in,    &Args::h_post,  &Args::h_res,
                                              &Args::h_pre,   &Args::h_mix,   &Args::inv_rms,
                                              &Args::sum_out, &Args::norm_out};
  static Status Infer(Args* args) { return InferMhcPreSinkhorn(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->options.num_iters = static_cast<std::int64_t>(values[0]);
    args->options.hc_eps = values[1];
    args->options.norm_eps = values[2];
  }
  static bool SetOptionalOutputs(Args* args, Attributes values) {
    const bool caches = values[3] != 0;
    const bool iterates = values[4] != 0;
    if (!caches && !iterates) return false;
    const DType dtype = args->h_post.dtype;
    const Dims& per_stream = args->h_post.sizes;  // [*, n]
    const std::int64_t n = per_stream[per_stream.rank - 1];
    args->h_pre = TensorView(nullptr, dtype, per_stream);
    Dims per_token = per_stream;
    per_token[per_token.rank - 1] = 1;
    args->inv_rms = TensorView(nullptr, dtype, per_token);
    if (!iterates) return true;
    const std::int64_t elements = NumElements(per_token);
    args->sum_out = TensorView(nullptr, dtype, {2 * args->options.num_iters, elements, n});
    args->norm_out = TensorView(nullptr, dtype, {2 * args->options.num_iters, elements, n, n});
    return true;
  }
};

struct Backward {
  using Args = MhcPreSinkhornBackwardArgs;
  static constexpr char kName[] = "mhc_pre_sinkhorn_backward";
  static constexpr char kSchema[] =
      "mhc_pre_sinkhorn_backward(Tensor grad_h_in, Tensor grad_h_post, Tensor grad_h_res, "
      "Tensor x, Tensor phi, Tensor alpha, Tensor bias, Tensor h_pre, Tensor hc_before_norm, "
      "Tensor inv_rms, Tensor? sum_out, Tensor? norm_out, int num_iters, float hc_eps) -> "
      "(Tensor grad_x, Tensor grad_phi, Tensor grad_alpha, Tensor grad_bias)";
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
  static Status Infer(Args* args) { return InferMhcPreSinkhornBackward(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->options.num_iters = static_cast<std::int64_t>(values[0]);
    args->options.hc_eps = values[1];
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
