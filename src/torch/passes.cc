// The operators of torch.ops.anabranch: one line a pass.
#include <string>

#include "anabranch/attn_res.h"
#include "anabranch/mhc.h"
#include "src/ops/attn_res/block_attn_res_spec.h"
#include "src/ops/attn_res/two_phase_spec.h"
#include "src/ops/mhc_head/spec.h"
#include "src/ops/mhc_permutation/spec.h"
#include "src/ops/mhc_post/spec.h"
#include "src/ops/mhc_pre/spec.h"
#include "src/ops/mhc_pre_sinkhorn/spec.h"
#include "src/ops/mhc_sinkhorn/spec.h"
#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

template <const PassSpec& kSpec, class Args>
constexpr Pass Of() {
  constexpr auto prepare = [](const void* args, Plan* plan, const Context& context) {
    return Prepare(*static_cast<const Args*>(args), plan, context);
  };
  constexpr auto with_args = [](void (*body)(void*, void*), void* context) {
    Args args;
    body(context, &args);
  };
  constexpr auto boxed = [](StableIValue* stack, std::uint64_t /*inputs*/,
                            std::uint64_t /*outputs*/) {
    static constexpr Pass kPass = {&kSpec, prepare, with_args, nullptr};
    Args args;
    RunBoxed(kPass, &args, stack);
  };
  return {&kSpec, prepare, with_args, boxed};
}

constexpr Pass kPasses[] = {
    Of<specs::kMhcPre, MhcPreArgs>(),
    Of<specs::kMhcPreBackward, MhcPreBackwardArgs>(),
    Of<specs::kMhcSinkhorn, MhcSinkhornArgs>(),
    Of<specs::kMhcSinkhornBackward, MhcSinkhornBackwardArgs>(),
    Of<specs::kMhcPermutation, MhcPermutationArgs>(),
    Of<specs::kMhcPermutationBackward, MhcPermutationBackwardArgs>(),
    Of<specs::kMhcPreSinkhorn, MhcPreSinkhornArgs>(),
    Of<specs::kMhcPreSinkhornBackward, MhcPreSinkhornBackwardArgs>(),
    Of<specs::kMhcPost, MhcPostArgs>(),
    Of<specs::kMhcPostBackward, MhcPostBackwardArgs>(),
    Of<specs::kMhcHead, MhcHeadArgs>(),
    Of<specs::kMhcHeadBackward, MhcHeadBackwardArgs>(),
    Of<specs::kBlockAttnRes, BlockAttnResArgs>(),
    Of<specs::kBlockAttnResBackward, BlockAttnResBackwardArgs>(),
    Of<specs::kAttnResPrepare, AttnResPrepareArgs>(),
    Of<specs::kAttnResPrepareBackward, AttnResPrepareBackwardArgs>(),
    Of<specs::kAttnResMerge, AttnResMergeArgs>(),
    Of<specs::kAttnResMergeBackward, AttnResMergeBackwardArgs>(),
};

}  // namespace

std::span<const Pass> Passes() { return kPasses; }

const Pass* FindPass(const std::string& name) {
  for (const Pass& pass : kPasses) {
    if (name == pass.spec->name) return &pass;
  }
  return nullptr;
}

}  // namespace anabranch::torch_face

STABLE_TORCH_LIBRARY_FRAGMENT(anabranch, m) {
  using anabranch::torch_face::Pass;
  for (const Pass& pass : anabranch::torch_face::Passes()) {
    m.def(anabranch::torch_face::SchemaOf(*pass.spec).c_str());
  }
}

STABLE_TORCH_LIBRARY_IMPL(anabranch, CPU, m) {
  using anabranch::torch_face::Pass;
  for (const Pass& pass : anabranch::torch_face::Passes()) m.impl(pass.spec->name, pass.boxed);
}
