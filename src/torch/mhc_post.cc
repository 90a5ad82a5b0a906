// anabranch::mhc_post and its backward for the dispatcher.
#include "anabranch/mhc_post.h"

#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

struct Forward {
  using Args = MhcPostArgs;
  static constexpr char kName[] = "mhc_post";
  static constexpr char kSchema[] =
      "mhc_post(Tensor x, Tensor? h_res, Tensor h_out, Tensor h_post) -> Tensor";
  static constexpr Input<Args> kInputs[] = {
      {"x", &Args::x}, {"h_res", &Args::h_res}, {"h_out", &Args::h_out}, {"h_post", &Args::h_post}};
  static constexpr Output<Args> kOutputs[] = {&Args::y};
  static Status Infer(Args* args) { return InferMhcPost(args); }
};

struct Backward {
  using Args = MhcPostBackwardArgs;
  static constexpr char kName[] = "mhc_post_backward";
  static constexpr char kSchema[] =
      "mhc_post_backward(Tensor grad_output, Tensor x, Tensor? h_res, Tensor h_out, Tensor h_post) "
      "-> (Tensor grad_x, Tensor grad_h_res, Tensor grad_h_out, Tensor grad_h_post)";
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
