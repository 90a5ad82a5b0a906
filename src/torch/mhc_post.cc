// anabranch::mhc_post and its backward for the dispatcher.
#include "anabranch/mhc_post.h"

#include <tuple>

#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

struct Forward {
  using Args = MhcPostArgs;
  static constexpr char kName[] = "mhc_post";
  static constexpr Input<Args> kInputs[] = {
      {"x", &Args::x}, {"h_res", &Args::h_res}, {"h_out", &Args::h_out}, {"h_post", &Args::h_post}};
  static constexpr Output<Args> kOutputs[] = {&Args::y};
  static Status Infer(Args* args) { return InferMhcPost(args); }
};

struct Backward {
  using Args = MhcPostBackwardArgs;
  static constexpr char kName[] = "mhc_post_backward";
  static constexpr Input<Args> kInputs[] = {{"grad_output", &Args::grad_output},
                                            {"x", &Args::x},
                                            {"h_res", &Args::h_res},
                                            {"h_out", &Args::h_out},
                                            {"h_post", &Args::h_post}};
  static constexpr Output<Args> kOutputs[] = {&Args::grad_x, &Args::grad_h_res, &Args::grad_h_out,
                                              &Args::grad_h_post};
  static Status Infer(Args* args) { return InferMhcPostBackward(args); }
};

const bool registered = RegisterInfer<Forward>() && RegisterInfer<Backward>();

Tensor MhcPost(const Tensor& x, const std::optional<Tensor>& h_res, const Tensor& h_out,
               const Tensor& h_post) {
  return RunCall<Forward>({&x, Optional(h_res), &h_out, &h_post}, {})[0];
}

Tensors<4> MhcPostBackward(const Tensor& grad_output, const Tensor& x,
                           const std::optional<Tensor>& h_res, const Tensor& h_out,
                           const Tensor& h_post) {
  return AsTuple<4>(RunCall<Backward>({&grad_output, &x, Optional(h_res), &h_out, &h_post}, {}));
}

}  // namespace
}  // namespace anabranch::torch_face

STABLE_TORCH_LIBRARY_FRAGMENT(anabranch, m) {
  m.def("mhc_post(Tensor x, Tensor? h_res, Tensor h_out, Tensor h_post) -> Tensor");
  m.def(
      "mhc_post_backward(Tensor grad_output, Tensor x, Tensor? h_res, Tensor h_out, Tensor h_post) "
      "-> (Tensor grad_x, Tensor grad_h_res, Tensor grad_h_out, Tensor grad_h_post)");
}

STABLE_TORCH_LIBRARY_IMPL(anabranch, CPU, m) {
  m.impl("mhc_post", TORCH_BOX(&anabranch::torch_face::MhcPost));
  m.impl("mhc_post_backward", TORCH_BOX(&anabranch::torch_face::MhcPostBackward));
}
