// anabranch::mhc_post_pre for the dispatcher. Its backward is those of its two halves.
#include "anabranch/mhc_post_pre.h"

#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

struct Forward {
  using Args = MhcPostPreArgs;
  static constexpr char kName[] = "mhc_post_pre";
  static constexpr char kSchema[] =
      "mhc_post_pre(Tensor x, Tensor? h_res, Tensor h_out, Tensor h_post, Tensor phi, "
      "Tensor alpha, Tensor bias, int num_iters, float hc_eps, float norm_eps, bool caches) -> "
      "(Tensor y, Tensor h_in, Tensor next_h_post, Tensor next_h_res, Tensor h_pre, "
      "Tensor hc_before_norm, Tensor inv_rms)";
  static constexpr Input<Args> kInputs[] = {{"x", &Args::x},         {"h_res", &Args::h_res},
                                            {"h_out", &Args::h_out}, {"h_post", &Args::h_post},
                                            {"phi", &Args::phi},     {"alpha", &Args::alpha},
                                            {"bias", &Args::bias}};
  static constexpr Output<Args> kOutputs[] = {&Args::y,          &Args::h_in,  &Args::next_h_post,
                                              &Args::next_h_res, &Args::h_pre, &Args::h_mix,
                                              &Args::inv_rms};
  static Status Infer(Args* args) { return InferMhcPostPre(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->options.num_iters = static_cast<std::int64_t>(values[0]);
    args->options.hc_eps = values[1];
    args->options.norm_eps = values[2];
  }
  static bool SetOptionalOutputs(Args* args, Attributes values) {
    if (values[3] == 0) return false;
    const Dims& per_stream = args->next_h_post.sizes;  // [*, n]
    args->h_pre = TensorView(nullptr, args->next_h_post.dtype, per_stream);
    Dims per_token = per_stream;
    per_token[per_token.rank - 1] = 1;
    args->inv_rms = TensorView(nullptr, args->next_h_post.dtype, per_token);
    return true;
  }
};

const bool registered = RegisterInfer<Forward>();

}  // namespace
}  // namespace anabranch::torch_face

STABLE_TORCH_LIBRARY_FRAGMENT(anabranch, m) {
  using namespace anabranch::torch_face;
  Define<Forward>(m);
}

STABLE_TORCH_LIBRARY_IMPL(anabranch, CPU, m) {
  using namespace anabranch::torch_face;
  Implement<Forward>(m);
}
