// anabranch::block_attn_res and its backward for the dispatcher.
#include "anabranch/block_attn_res.h"

#include <tuple>

#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

struct Forward {
  using Args = BlockAttnResArgs;
  static constexpr char kName[] = "block_attn_res";
  static constexpr Input<Args> kInputs[] = {{"partial_block", &Args::partial_block},
                                            {"proj_weight", &Args::proj_weight},
                                            {"rmsnorm_gamma", &Args::rmsnorm_gamma}};
  static constexpr auto kList = &Args::blocks;
  static constexpr Output<Args> kOutputs[] = {&Args::h, &Args::rms_cache, &Args::alpha_cache};
  static constexpr std::size_t kAttributes = 5;
  static Status Infer(Args* args) { return InferBlockAttnRes(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->scale = values[0];
    args->rmsnorm_eps = values[1];
    args->enable_rmsnorm = values[2] != 0;
  }
  static void SetOptionalOutputs(Args* args, Attributes values) {
    const DType statistic = args->h.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    Dims sizes = args->h.sizes;  // [*, D] -> [*, L]
    sizes[sizes.rank - 1] =
        static_cast<std::int64_t>(args->blocks.size()) + (args->partial_block.defined() ? 1 : 0);
    if (values[4] != 0) args->alpha_cache = TensorView(nullptr, statistic, sizes);
    sizes.push_back(1);
    if (values[3] != 0) args->rms_cache = TensorView(nullptr, statistic, sizes);
  }
};

struct Backward {
  using Args = BlockAttnResBackwardArgs;
  static constexpr char kName[] = "block_attn_res_backward";
  static constexpr Input<Args> kInputs[] = {
      {"grad_h", &Args::grad_h},           {"partial_block", &Args::partial_block},
      {"proj_weight", &Args::proj_weight}, {"rmsnorm_gamma", &Args::rmsnorm_gamma},
      {"alpha_cache", &Args::alpha_cache}, {"rms_cache", &Args::rms_cache}};
  static constexpr auto kList = &Args::blocks;
  static constexpr auto kListOutput = &Args::grad_blocks;
  static constexpr Output<Args> kOutputs[] = {&Args::grad_partial_block, &Args::grad_proj_weight,
                                              &Args::grad_rmsnorm_gamma};
  static constexpr std::size_t kAttributes = 3;
  static Status Infer(Args* args) { return InferBlockAttnResBackward(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->scale = values[0];
    args->rmsnorm_eps = values[1];
    args->enable_rmsnorm = values[2] != 0;
  }
};

const bool registered = RegisterInfer<Forward>() && RegisterInfer<Backward>();

Tensors<3> BlockAttnRes(const std::vector<Tensor>& blocks, const std::optional<Tensor>& partial,
                        const Tensor& proj_weight, const std::optional<Tensor>& gamma, double scale,
                        double eps, bool norm, bool rms_out, bool alpha_out) {
  const double attributes[] = {scale, eps, norm ? 1.0 : 0.0, rms_out ? 1.0 : 0.0,
                               alpha_out ? 1.0 : 0.0};
  return AsTuple<3>(
      RunCall<Forward>({Optional(partial), &proj_weight, Optional(gamma)}, attributes, blocks));
}

Tensors<4> BlockAttnResBackward(const Tensor& grad_h, const std::vector<Tensor>& blocks,
                                const std::optional<Tensor>& partial, const Tensor& proj_weight,
                                const std::optional<Tensor>& gamma, const Tensor& alpha_cache,
                                const std::optional<Tensor>& rms_cache, double scale, double eps,
                                bool norm) {
  const double attributes[] = {scale, eps, norm ? 1.0 : 0.0};
  return AsTuple<4>(RunCall<Backward>({&grad_h, Optional(partial), &proj_weight, Optional(gamma),
                                       &alpha_cache, Optional(rms_cache)},
                                      attributes, blocks));
}

}  // namespace
}  // namespace anabranch::torch_face

STABLE_TORCH_LIBRARY_FRAGMENT(anabranch, m) {
  m.def(
      "block_attn_res(Tensor[] blocks, Tensor? partial_block, Tensor proj_weight, "
      "Tensor? rmsnorm_gamma, float scale, float rmsnorm_eps, bool enable_rmsnorm, bool rms_out, "
      "bool alpha_out) -> (Tensor h, Tensor rms_cache, Tensor alpha_cache)");
  m.def(
      "block_attn_res_backward(Tensor grad_h, Tensor[] blocks, Tensor? partial_block, "
      "Tensor proj_weight, Tensor? rmsnorm_gamma, Tensor alpha_cache, Tensor? rms_cache, "
      "float scale, float rmsnorm_eps, bool enable_rmsnorm) -> (Tensor grad_partial_block, "
      "Tensor grad_proj_weight, Tensor grad_rmsnorm_gamma, Tensor grad_blocks)");
}

STABLE_TORCH_LIBRARY_IMPL(anabranch, CPU, m) {
  m.impl("block_attn_res", TORCH_BOX(&anabranch::torch_face::BlockAttnRes));
  m.impl("block_attn_res_backward", TORCH_BOX(&anabranch::torch_face::BlockAttnResBackward));
}
