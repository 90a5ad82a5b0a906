// The description of mhc_pre_sinkhorn and its backward; include/anabranch/mhc_pre_sinkhorn.h has
// the formula.
#ifndef ANABRANCH_SRC_OPS_MHC_PRE_SINKHORN_SPEC_H_
#define ANABRANCH_SRC_OPS_MHC_PRE_SINKHORN_SPEC_H_

#include "anabranch/mhc_pre_sinkhorn.h"
#include "src/core/spec.h"
#include "src/ops/mhc_spec.h"

namespace anabranch::specs {

using PreSinkhorn = MhcPreSinkhornArgs;
inline constexpr Argument kMhcPreSinkhornArguments[] = {
    In<&PreSinkhorn::x>("x", "x", kActivation, "T,n,D"),
    In<&PreSinkhorn::phi>("phi", "phi", kCoefficient, "F,K"),
    In<&PreSinkhorn::alpha>("alpha", "alpha", kCoefficient, "3"),
    In<&PreSinkhorn::bias>("bias", "bias", kCoefficient, "F"),
    Out<&PreSinkhorn::h_in>("h_in", "hin", kActivation, "T,D"),
    Out<&PreSinkhorn::h_post>("h_post", "hPost", kCoefficient, "T,n"),
    Out<&PreSinkhorn::h_res>("h_res", "hRes", kCoefficient, "T,n,n|T,n*n"),
    Out<&PreSinkhorn::h_pre>("h_pre", "hPre", kCoefficient, "T,n").Group(1),
    Out<&PreSinkhorn::h_mix>("h_mix", "hcBeforeNorm", kCoefficient, "T,F")
        .Python("hc_before_norm")
        .Group(1),
    Out<&PreSinkhorn::inv_rms>("inv_rms", "invRms", kCoefficient, "T,1|T").Group(1),
    Out<&PreSinkhorn::sum_out>("sum_out", "sumOut", kCoefficient, "2I,T,n").Group(2),
    Out<&PreSinkhorn::norm_out>("norm_out", "normOut", kCoefficient, "2I,T,n,n").Group(2),
};
inline constexpr Attribute kMhcPreSinkhornAttributes[] = {
    NumIters<&PreSinkhorn::options>(),
    BothEps<&PreSinkhorn::options>(),
    SinkhornEps<&PreSinkhorn::options>(nullptr, nullptr),
    NormEps<&PreSinkhorn::options>("normEps", "norm_eps"),
    PostMultiplier<&PreSinkhorn::options>(),
};
inline constexpr Ask kMhcPreSinkhornAsks[] = {{"caches", 1}, {"iterates", 2}};
inline constexpr PassSpec kMhcPreSinkhorn = {
    .op = "mhc_pre_sinkhorn",
    .name = "mhc_pre_sinkhorn",
    .arguments = kMhcPreSinkhornArguments,
    .attributes = kMhcPreSinkhornAttributes,
    .asks = kMhcPreSinkhornAsks,
    .limits = kPreLimits,
    .rows = Rows::kGates,
    .iterations = Field<&PreSinkhorn::options, &MhcOptions::num_iters>,
    .more = [](Checker& c, void* args, const Sizes& /*sizes*/, Face face) {
      CheckClamp(c, Field<&PreSinkhorn::options>(args), face);
    }};
SPEC_IS_SOUND(kMhcPreSinkhorn);

using PreSinkhornBackward = MhcPreSinkhornBackwardArgs;
inline constexpr Argument kMhcPreSinkhornBackwardArguments[] = {
    In<&PreSinkhornBackward::grad_h_in>("grad_h_in", "gradHin", kActivation, "T,D"),
    In<&PreSinkhornBackward::grad_h_post>("grad_h_post", "gradHPost", kCoefficient, "T,n"),
    In<&PreSinkhornBackward::grad_h_res>("grad_h_res", "gradHRes", kCoefficient, "T,n,n|T,n*n"),
    In<&PreSinkhornBackward::x>("x", "x", kActivation, "T,n,D"),
    In<&PreSinkhornBackward::phi>("phi", "phi", kCoefficient, "F,K"),
    In<&PreSinkhornBackward::alpha>("alpha", "alpha", kCoefficient, "3"),
    In<&PreSinkhornBackward::bias>("bias", "bias", kCoefficient, "F"),
    In<&PreSinkhornBackward::h_pre>("h_pre", "hPre", kCoefficient, "T,n"),
    In<&PreSinkhornBackward::h_mix>("h_mix", "hcBeforeNorm", kCoefficient, "T,F")
        .Python("hc_before_norm"),
    In<&PreSinkhornBackward::inv_rms>("inv_rms", "invRms", kCoefficient, "T,1|T"),
    In<&PreSinkhornBackward::sum_out>("sum_out", "sumOut", kCoefficient, "2I,T,n").Group(1),
    In<&PreSinkhornBackward::norm_out>("norm_out", "normOut", kCoefficient, "2I,T,n,n").Group(1),
    Out<&PreSinkhornBackward::grad_x>("grad_x", "gradX", kActivation, "T,n,D"),
    Out<&PreSinkhornBackward::grad_phi>("grad_phi", "gradPhi", kCoefficient, "F,K"),
    Out<&PreSinkhornBackward::grad_alpha>("grad_alpha", "gradAlpha", kCoefficient, "3"),
    Out<&PreSinkhornBackward::grad_bias>("grad_bias", "gradBias", kCoefficient, "F"),
};
inline constexpr Attribute kMhcPreSinkhornBackwardAttributes[] = {
    NumItersUnlessCached<&PreSinkhornBackward::options>(),
    BothEps<&PreSinkhornBackward::options>(),
    SinkhornEps<&PreSinkhornBackward::options>(nullptr, nullptr),
    PostMultiplier<&PreSinkhornBackward::options>(),
};
// With caches the number of iterations is theirs: 2I is learned from them.
inline constexpr PassSpec kMhcPreSinkhornBackward = {
    .op = "mhc_pre_sinkhorn",
    .name = "mhc_pre_sinkhorn_backward",
    .arguments = kMhcPreSinkhornBackwardArguments,
    .attributes = kMhcPreSinkhornBackwardAttributes,
    .limits = kPreLimits,
    .rows = Rows::kGates,
    .more = [](Checker& c, void* args, const Sizes& /*sizes*/, Face face) {
      const TensorView& sum_out = Field<&PreSinkhornBackward::sum_out>(args);
      const MhcOptions& options = Field<&PreSinkhornBackward::options>(args);
      if (!sum_out.defined()) CheckIterations(c, options, face);
      CheckSteps(c, face == Face::kC ? "sumOut" : "sum_out", sum_out);
      CheckClamp(c, options, face);
    }};
SPEC_IS_SOUND(kMhcPreSinkhornBackward);

}  // namespace anabranch::specs

#endif  // ANABRANCH_SRC_OPS_MHC_PRE_SINKHORN_SPEC_H_
