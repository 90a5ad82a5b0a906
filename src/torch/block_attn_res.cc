// anabranch::block_attn_res and its backward for the dispatcher.
#include "anabranch/block_attn_res.h"

#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

struct Forward {
  using Args = BlockAttnResArgs;
  static constexpr char kName[] = "block_attn_res";
  static constexpr char kSchema[] =
      "block_attn_res(Tensor[] blocks, Tensor? partial_block, Tensor proj_weight, "
      "Tensor? rmsnorm_gamma, float scale, float rmsnorm_eps, bool enable_rmsnorm, bool rms_out, "
      "bool alpha_out) -> (Tensor h, Tensor rms_cache, Tensor alpha_cache)";
  static constexpr Input<Args> kInputs[] = {{"partial_block", &Args::partial_block},
                                            {"proj_weight", &Args::proj_weight},
                                            {"rmsnorm_gamma", &Args::rmsnorm_gamma}};
  static constexpr auto kList = &Args::blocks;
  static constexpr Output<Args> kOutputs[] = {&Args::h, &Args::rms_cache, &Args::alpha_cache};
  static Status Infer(Args* args) { return InferBlockAttnRes(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->scale = values[0];
    args->rmsnorm_eps = values[1];
    args->enable_rmsnorm = values[2] != 0;
  }
  static bool SetOptionalOutputs(Args* args, Attributes values) {
    const DType statistic = args->h.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    Dims sizes = args->h.sizes;  // [*, D] -> [*, L]
    sizes[sizes.rank - 1] =
        static_cast<std::int64_t>(args->blocks.size()) + (args->partial_block.defined() ? 1 : 0);
    if (values[4] != 0) args->alpha_cache = TensorView(nullptr, statistic, sizes);
    sizes.push_back(1);
    if (values[3] != 0) args->rms_cache = TensorView(nullptr, statistic, sizes);
    return values[3] != 0 || values[4] != 0;
  }
};

struct Backward {
  using Args = BlockAttnResBackwardArgs;
  static constexpr char kName[] = "block_attn_res_backward";
  static constexpr char kSchema[] =
      "block_attn_res_backward(Tensor grad_h, Tensor[] blocks, Tensor? partial_block, "
      "Tensor proj_weight, Tensor? rmsnorm_gamma, Tensor alpha_cache, Tensor? rms_cache, "
      "float scale, float rmsnorm_eps, bool enable_rmsnorm) -> (Tensor grad_partial_block, "
      "Tensor grad_proj_weight, Tensor grad_rmsnorm_gamma, Tensor grad_blocks)";
  static constexpr Input<Args> kInputs[] = {
      {"grad_h", &Args::grad_h},           {"partial_block", &Args::partial_block},
      {"proj_weight", &Args::proj_weight}, {"rmsnorm_gamma", &Args::rmsnorm_gamma},
      {"alpha_cache", &Args::alpha_cache}, {"rms_cache", &Args::rms_cache}};
  static constexpr auto kList = &Args::blocks;
  static constexpr auto kListOutput = &Args::grad_blocks;
  static constexpr Output<Args> kOutputs[] = {&Args::grad_partial_block, &Args::grad_proj_weight,
                                              &Args::grad_rmsnorm_gamma};
  static Status Infer(Args* args) { return InferBlockAttnResBackward(args); }
  static void SetAttributes(Args* args, Attributes values) {
    args->scale = values[0];
    args->rmsnorm_eps = values[1];
    args->enable_rmsnorm = values[2] != 0;
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
