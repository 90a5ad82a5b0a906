// anabranch::attn_res_prepare, attn_res_merge and their backwards for the dispatcher.
#include "anabranch/attn_res_two_phase.h"
#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

template <class Args>
void SetScoreAttributes(Args* args, Attributes values) {
  args->scale = values[0];
  args->rmsnorm_eps = values[1];
  args->enable_rmsnorm = values[2] != 0;
}

struct PrepareForward {
  using Args = AttnResPrepareArgs;
  static constexpr char kName[] = "attn_res_prepare";
  static constexpr char kSchema[] =
      "attn_res_prepare(Tensor[] blocks, Tensor queries, Tensor? rmsnorm_gamma, float scale, "
      "float rmsnorm_eps, bool enable_rmsnorm) -> (Tensor o, Tensor m, Tensor l)";
  static constexpr Input<Args> kInputs[] = {{"queries", &Args::queries},
                                            {"rmsnorm_gamma", &Args::rmsnorm_gamma}};
  static constexpr auto kList = &Args::blocks;
  static constexpr Output<Args> kOutputs[] = {&Args::o, &Args::m, &Args::l};
  static Status Infer(Args* args) {
    // An empty list says nothing of tokens: there are none, and o is [S, D].
    if (args->blocks.empty() && args->queries.defined() && !args->o.defined()) {
      const bool wide = args->queries.dtype == DType::kFloat64;
      args->o = TensorView(nullptr, wide ? DType::kFloat64 : DType::kFloat32, args->queries.sizes);
    }
    return InferAttnResPrepare(args);
  }
  static void SetAttributes(Args* a, Attributes values) { SetScoreAttributes(a, values); }
};

struct PrepareBackward {
  using Args = AttnResPrepareBackwardArgs;
  static constexpr char kName[] = "attn_res_prepare_backward";
  static constexpr char kSchema[] =
      "attn_res_prepare_backward(Tensor grad_o, Tensor grad_m, Tensor grad_l, Tensor[] blocks, "
      "Tensor queries, Tensor? rmsnorm_gamma, float scale, float rmsnorm_eps, bool enable_rmsnorm) "
      "-> (Tensor grad_queries, Tensor grad_rmsnorm_gamma, Tensor grad_blocks)";
  static constexpr Input<Args> kInputs[] = {{"grad_o", &Args::grad_o},
                                            {"grad_m", &Args::grad_m},
                                            {"grad_l", &Args::grad_l},
                                            {"queries", &Args::queries},
                                            {"rmsnorm_gamma", &Args::rmsnorm_gamma}};
  static constexpr auto kList = &Args::blocks;
  static constexpr auto kListOutput = &Args::grad_blocks;
  static constexpr Output<Args> kOutputs[] = {&Args::grad_queries, &Args::grad_rmsnorm_gamma};
  static Status Infer(Args* args) { return InferAttnResPrepareBackward(args); }
  static void SetAttributes(Args* a, Attributes values) { SetScoreAttributes(a, values); }
};

struct MergeForward {
  using Args = AttnResMergeArgs;
  static constexpr char kName[] = "attn_res_merge";
  static constexpr char kSchema[] =
      "attn_res_merge(Tensor o, Tensor m, Tensor l, Tensor v, Tensor query, "
      "Tensor? rmsnorm_gamma, float scale, float rmsnorm_eps, bool enable_rmsnorm) -> Tensor";
  static constexpr Input<Args> kInputs[] = {
      {"o", &Args::o}, {"m", &Args::m},         {"l", &Args::l},
      {"v", &Args::v}, {"query", &Args::query}, {"rmsnorm_gamma", &Args::rmsnorm_gamma}};
  static constexpr Output<Args> kOutputs[] = {&Args::h};
  static Status Infer(Args* args) { return InferAttnResMerge(args); }
  static void SetAttributes(Args* a, Attributes values) { SetScoreAttributes(a, values); }
};

struct MergeBackward {
  using Args = AttnResMergeBackwardArgs;
  static constexpr char kName[] = "attn_res_merge_backward";
  static constexpr char kSchema[] =
      "attn_res_merge_backward(Tensor grad_h, Tensor o, Tensor m, Tensor l, Tensor v, "
      "Tensor query, Tensor? rmsnorm_gamma, float scale, float rmsnorm_eps, bool enable_rmsnorm) "
      "-> (Tensor grad_o, Tensor grad_m, Tensor grad_l, Tensor grad_v, Tensor grad_query, "
      "Tensor grad_rmsnorm_gamma)";
  static constexpr Input<Args> kInputs[] = {{"grad_h", &Args::grad_h},
                                            {"o", &Args::o},
                                            {"m", &Args::m},
                                            {"l", &Args::l},
                                            {"v", &Args::v},
                                            {"query", &Args::query},
                                            {"rmsnorm_gamma", &Args::rmsnorm_gamma}};
  static constexpr Output<Args> kOutputs[] = {&Args::grad_o,     &Args::grad_m,
                                              &Args::grad_l,     &Args::grad_v,
                                              &Args::grad_query, &Args::grad_rmsnorm_gamma};
  static Status Infer(Args* args) { return InferAttnResMergeBackward(args); }
  static void SetAttributes(Args* a, Attributes values) { SetScoreAttributes(a, values); }
};

const bool registered = RegisterInfer<PrepareForward>() && RegisterInfer<PrepareBackward>() &&
                        RegisterInfer<MergeForward>() && RegisterInfer<MergeBackward>();

}  // namespace
}  // namespace anabranch::torch_face

STABLE_TORCH_LIBRARY_FRAGMENT(anabranch, m) {
  using namespace anabranch::torch_face;
  Define<PrepareForward>(m);
  Define<PrepareBackward>(m);
  Define<MergeForward>(m);
  Define<MergeBackward>(m);
}

STABLE_TORCH_LIBRARY_IMPL(anabranch, CPU, m) {
  using namespace anabranch::torch_face;
  Implement<PrepareForward>(m);
  Implement<PrepareBackward>(m);
  Implement<MergeForward>(m);
  Implement<MergeBackward>(m);
}
