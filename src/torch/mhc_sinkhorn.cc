// anabranch::mhc_sinkhorn, mhc_permutation and their backwards for the dispatcher.
#include "anabranch/mhc_sinkhorn.h"

#include "anabranch/mhc_permutation.h"
#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

template <class Args>
void SetIteration(Args* args, Attributes values) {
  args->options.num_iters = static_cast<std::int64_t>(values[0]);
  args->options.eps = values[1];
  args->options.clamp_low = values[2];
  args->options.clamp_high = values[3];
}

struct Sinkhorn {
  using Args = MhcSinkhornArgs;
  static constexpr char kName[] = "mhc_sinkhorn";
  static constexpr char kSchema[] =
      "mhc_sinkhorn(Tensor logits, int num_iters, float eps, float clamp_low, float clamp_high, "
      "bool iterates) -> (Tensor h_res, Tensor sum_out, Tensor norm_out)";
  static constexpr Input<Args> kInputs[] = {{"logits", &Args::logits}};
  static constexpr Output<Args> kOutputs[] = {&Args::h_res, &Args::sum_out, &Args::norm_out};
  static Status Infer(Args* args) { return InferMhcSinkhorn(args); }
  static void SetAttributes(Args* args, Attributes values) { SetIteration(args, values); }
  static bool SetOptionalOutputs(Args* args, Attributes values) {
    if (values[4] == 0) return false;
    Dims sums{2 * args->options.num_iters};
    for (std::int64_t size : args->logits.sizes) sums.push_back(size);
    args->norm_out = TensorView(nullptr, args->logits.dtype, sums);
    --sums.rank;
    args->sum_out = TensorView(nullptr, args->logits.dtype, sums);
    return true;
  }
};

struct SinkhornBackward {
  using Args = MhcSinkhornBackwardArgs;
  static constexpr char kName[] = "mhc_sinkhorn_backward";
  static constexpr char kSchema[] =
      "mhc_sinkhorn_backward(Tensor grad_h_res, Tensor? logits, Tensor? sum_out, "
      "Tensor? norm_out, int num_iters, float eps, float clamp_low, float clamp_high) -> Tensor";
  static constexpr Input<Args> kInputs[] = {{"grad_h_res", &Args::grad_h_res},
                                            {"logits", &Args::logits},
                                            {"sum_out", &Args::sum_out},
                                            {"norm_out", &Args::norm_out}};
  static constexpr Output<Args> kOutputs[] = {&Args::grad_logits};
  static Status Infer(Args* args) { return InferMhcSinkhornBackward(args); }
  static void SetAttributes(Args* args, Attributes values) { SetIteration(args, values); }
};

struct Permutation {
  using Args = MhcPermutationArgs;
  static constexpr char kName[] = "mhc_permutation";
  static constexpr char kSchema[] = "mhc_permutation(Tensor logits) -> Tensor";
  static constexpr Input<Args> kInputs[] = {{"logits", &Args::logits}};
  static constexpr Output<Args> kOutputs[] = {&Args::h_res};
  static Status Infer(Args* args) { return InferMhcPermutation(args); }
};

struct PermutationBackward {
  using Args = MhcPermutationBackwardArgs;
  static constexpr char kName[] = "mhc_permutation_backward";
  static constexpr char kSchema[] =
      "mhc_permutation_backward(Tensor grad_h_res, Tensor logits) -> Tensor";
  static constexpr Input<Args> kInputs[] = {{"grad_h_res", &Args::grad_h_res},
                                            {"logits", &Args::logits}};
  static constexpr Output<Args> kOutputs[] = {&Args::grad_logits};
  static Status Infer(Args* args) { return InferMhcPermutationBackward(args); }
};

const bool registered = RegisterInfer<Sinkhorn>() && RegisterInfer<SinkhornBackward>() &&
                        RegisterInfer<Permutation>() && RegisterInfer<PermutationBackward>();

}  // namespace
}  // namespace anabranch::torch_face

STABLE_TORCH_LIBRARY_FRAGMENT(anabranch, m) {
  using namespace anabranch::torch_face;
  Define<Sinkhorn>(m);
  Define<SinkhornBackward>(m);
  Define<Permutation>(m);
  Define<PermutationBackward>(m);
}

STABLE_TORCH_LIBRARY_IMPL(anabranch, CPU, m) {
  using namespace anabranch::torch_face;
  Implement<Sinkhorn>(m);
  Implement<SinkhornBackward>(m);
  Implement<Permutation>(m);
  Implement<PermutationBackward>(m);
}
