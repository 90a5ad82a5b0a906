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

// The functions of one pass, for the table below.
template <const PassSpec& kSpec, class Args>
struct Face {
  static Status PrepareIt(const void* args, Plan* plan, const Context& context) {
    return Prepare(*static_cast<const Args*>(args), plan, context);
  }
  static void WithArgs(void (*body)(void*, void*), void* context) {
    Args args;
    body(context, &args);
  }
  static void Boxed(StableIValue* stack, std::uint64_t /*inputs*/, std::uint64_t /*outputs*/) {
    Args args;
    RunBoxed({&kSpec, PrepareIt, WithArgs, nullptr}, &args, stack);
  }
};

template <const PassSpec& kSpec, class Args>
constexpr Pass Of() {
  using It = Face<kSpec, Args>;
  return {&kSpec, It::PrepareIt, It::WithArgs, It::Boxed};
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
