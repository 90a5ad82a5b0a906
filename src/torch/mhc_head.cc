// anabranch::mhc_head and its backward for the dispatcher.
#include "anabranch/mhc_head.h"

#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

struct Forward {
  using Args = MhcHeadArgs;
  static constexpr char kName[] = "mhc_head";
  static constexpr char kSchema[] =
      "mhc_head(Tensor x, Tensor fn, Tensor base, Tensor scale, float norm_eps, float hc_eps, "
      "bool caches) -> (Tensor y, Tensor inv_rms, Tensor h_mix, Tensor w)";
  static constexpr Input<Args> kInputs[] = {
      {"x", &Args::x}, {"fn", &Args::fn}, {"base", &Args::base}, {"scale", &Args::scale}};
  static constexpr Output<Args> kOutputs[] = {&Args::y, &Args::inv_rms, &Args::h_mix, &Args::w};
  static Status Infer(Args* args) { return InferMhcHead(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->options.norm_eps = values[0];
    args->options.hc_eps = values[1];
  }
  // What a backward needs: one of the three asks for all.
  static bool SetOptionalOutputs(Args* args, Attributes values) {
    if (values[2] == 0) return false;
    Dims tokens = args->y.sizes;  // [*, D] -> [*]
    --tokens.rank;
    args->inv_rms = TensorView(nullptr, args->fn.dtype, tokens);
    return true;
  }
};

struct Backward {
  using Args = MhcHeadBackwardArgs;
  static constexpr char kName[] = "mhc_head_backward";
  static constexpr char kSchema[] =
      "mhc_head_backward(Tensor grad_y, Tensor x, Tensor fn, Tensor scale, Tensor inv_rms, "
      "Tensor h_mix, Tensor w, float hc_eps) -> (Tensor grad_x, Tensor grad_fn, Tensor grad_base, "
      "Tensor grad_scale)";
  static constexpr Input<Args> kInputs[] = {{"grad_y", &Args::grad_y},
                                            {"x", &Args::x},
                                            {"fn", &Args::fn},
                                            {"scale", &Args::scale},
                                            {"inv_rms", &Args::inv_rms},
                                            {"h_mix", &Args::h_mix},
                                            {"w", &Args::w}};
  static constexpr Output<Args> kOutputs[] = {&Args::grad_x, &Args::grad_fn, &Args::grad_base,
                                              &Args::grad_scale};
  static Status Infer(Args* args) { return InferMhcHeadBackward(args); }
  static void SetAttributes(Args* args, Attributes values) { args->options.hc_eps = values[0]; }
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
