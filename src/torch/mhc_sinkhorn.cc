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
  static constexpr Input<Args> kInputs[] = {{"logits", &Args::logits}};
  static constexpr Output<Args> kOutputs[] = {&Args::h_res, &Args::sum_out, &Args::norm_out};
  static constexpr std::size_t kAttributes = 5;
  static Status Infer(Args* args) { return InferMhcSinkhorn(args); }
  static void SetAttributes(Args* args, Attributes values) { SetIteration(args, values); }
  static void SetOptionalOutputs(Args* args, Attributes values) {
    if (values[4] == 0) return;
    Dims sums{2 * args->options.num_iters};
    for (std::int64_t size : args->logits.sizes) sums.push_back(size);
    args->norm_out = TensorView(nullptr, args->logits.dtype, sums);
    --sums.rank;
    args->sum_out = TensorView(nullptr, args->logits.dtype, sums);
  }
};

struct SinkhornBackward {
  using Args = MhcSinkhornBackwardArgs;
  static constexpr char kName[] = "mhc_sinkhorn_backward";
  static constexpr Input<Args> kInputs[] = {{"grad_h_res", &Args::grad_h_res},
                                            {"logits", &Args::logits},
                                            {"sum_out", &Args::sum_out},
                                            {"norm_out", &Args::norm_out}};
  static constexpr Output<Args> kOutputs[] = {&Args::grad_logits};
  static constexpr std::size_t kAttributes = 4;
  static Status Infer(Args* args) { return InferMhcSinkhornBackward(args); }
  static void SetAttributes(Args* args, Attributes values) { SetIteration(args, values); }
};

struct Permutation {
  using Args = MhcPermutationArgs;
  static constexpr char kName[] = "mhc_permutation";
  static constexpr Input<Args> kInputs[] = {{"logits", &Args::logits}};
  static constexpr Output<Args> kOutputs[] = {&Args::h_res};
  static Status Infer(Args* args) { return InferMhcPermutation(args); }
};

struct PermutationBackward {
  using Args = MhcPermutationBackwardArgs;
  static constexpr char kName[] = "mhc_permutation_backward";
  static constexpr Input<Args> kInputs[] = {{"grad_h_res", &Args::grad_h_res},
                                            {"logits", &Args::logits}};
  static constexpr Output<Args> kOutputs[] = {&Args::grad_logits};
  static Status Infer(Args* args) { return InferMhcPermutationBackward(args); }
};

const bool registered = RegisterInfer<Sinkhorn>() && RegisterInfer<SinkhornBackward>() &&
                        RegisterInfer<Permutation>() && RegisterInfer<PermutationBackward>();

Tensors<3> MhcSinkhorn(const Tensor& logits, std::int64_t num_iters, double eps, double clamp_low,
                       double clamp_high, bool iterates) {
  const double attributes[] = {static_cast<double>(num_iters), eps, clamp_low, clamp_high,
                               iterates ? 1.0 : 0.0};
  return AsTuple<3>(RunCall<Sinkhorn>({&logits}, attributes));
}

Tensor MhcSinkhornBackward(const Tensor& grad_h_res, const std::optional<Tensor>& logits,
                           const std::optional<Tensor>& sum_out,
                           const std::optional<Tensor>& norm_out, std::int64_t num_iters,
                           double eps, double clamp_low, double clamp_high) {
  const double attributes[] = {static_cast<double>(num_iters), eps, clamp_low, clamp_high};
  return RunCall<SinkhornBackward>(
      {&grad_h_res, Optional(logits), Optional(sum_out), Optional(norm_out)}, attributes)[0];
}

Tensor MhcPermutation(const Tensor& logits) { return RunCall<Permutation>({&logits}, {})[0]; }

Tensor MhcPermutationBackward(const Tensor& grad_h_res, const Tensor& logits) {
  return RunCall<PermutationBackward>({&grad_h_res, &logits}, {})[0];
}

}  // namespace
}  // namespace anabranch::torch_face

STABLE_TORCH_LIBRARY_FRAGMENT(anabranch, m) {
  m.def(
      "mhc_sinkhorn(Tensor logits, int num_iters, float eps, float clamp_low, float clamp_high, "
      "bool iterates) -> (Tensor h_res, Tensor sum_out, Tensor norm_out)");
  m.def(
      "mhc_sinkhorn_backward(Tensor grad_h_res, Tensor? logits, Tensor? sum_out, "
      "Tensor? norm_out, int num_iters, float eps, float clamp_low, float clamp_high) -> Tensor");
  m.def("mhc_permutation(Tensor logits) -> Tensor");
  m.def("mhc_permutation_backward(Tensor grad_h_res, Tensor logits) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(anabranch, CPU, m) {
  m.impl("mhc_sinkhorn", TORCH_BOX(&anabranch::torch_face::MhcSinkhorn));
  m.impl("mhc_sinkhorn_backward", TORCH_BOX(&anabranch::torch_face::MhcSinkhornBackward));
  m.impl("mhc_permutation", TORCH_BOX(&anabranch::torch_face::MhcPermutation));
  m.impl("mhc_permutation_backward", TORCH_BOX(&anabranch::torch_face::MhcPermutationBackward));
}
