// The description of mhc_pre and its backward; include/anabranch/mhc_pre.h has the formula.
#ifndef ANABRANCH_SRC_OPS_MHC_PRE_SPEC_H_
#define ANABRANCH_SRC_OPS_MHC_PRE_SPEC_H_

#include "anabranch/mhc_pre.h"
#include "src/core/spec.h"
#include "src/ops/mhc_spec.h"

namespace anabranch::specs {

inline constexpr Argument kMhcPreArguments[] = {
    In<&MhcPreArgs::x>("x", "x", kActivation, "T,n,D"),
    In<&MhcPreArgs::phi>("phi", "phi", kCoefficient, "F,K"),
    In<&MhcPreArgs::alpha>("alpha", "alpha", kCoefficient, "A"),
    In<&MhcPreArgs::bias>("bias", "bias", kCoefficient, "F"),
    In<&MhcPreArgs::gamma>("gamma", "gammaOptional", kCoefficient, "n,D").Optional(),
    Out<&MhcPreArgs::h_in>("h_in", "hIn", kActivation, "T,D"),
    Out<&MhcPreArgs::h_post>("h_post", "hPost", kCoefficient, "T,n"),
    Out<&MhcPreArgs::h_res>("h_res", "hRes", kCoefficient, "T,R").WithResidual(),
    Out<&MhcPreArgs::inv_rms>("inv_rms", "invRmsOptional", kCoefficient, "T").Group(1),
    Out<&MhcPreArgs::h_mix>("h_mix", "hMixOptional", kCoefficient, "T,F").Group(1),
    Out<&MhcPreArgs::h_pre>("h_pre", "hPreOptional", kCoefficient, "T,n").Group(1),
};
inline constexpr Attribute kMhcPreAttributes[] = {
    NormEps<&MhcPreArgs::options>("normEps", "norm_eps"),
    PreEps<&MhcPreArgs::options>(),
    PostMultiplier<&MhcPreArgs::options>(),
    Number<&MhcPreArgs::residual>("residual", nullptr, "residual"),
    OpImplMode<&MhcPreArgs::options>(),
};
inline constexpr Ask kMhcPreAsks[] = {{"caches", 1}};
inline constexpr PassSpec kMhcPre = {.op = "mhc_pre",
                                     .name = "mhc_pre",
                                     .arguments = kMhcPreArguments,
                                     .attributes = kMhcPreAttributes,
                                     .asks = kMhcPreAsks,
                                     .limits = kPreLimits,
                                     .rows = Rows::kGates};
SPEC_IS_SOUND(kMhcPre);

using PreBackward = MhcPreBackwardArgs;
inline constexpr Argument kMhcPreBackwardArguments[] = {
    In<&PreBackward::x>("x", "x", kActivation, "T,n,D"),
    In<&PreBackward::phi>("phi", "phi", kCoefficient, "F,K"),
    In<&PreBackward::alpha>("alpha", "alpha", kCoefficient, "A"),
    In<&PreBackward::grad_h_in>("grad_h_in", "gradHIn", kActivation, "T,D"),
    In<&PreBackward::grad_h_post>("grad_h_post", "gradHPost", kCoefficient, "T,n"),
    In<&PreBackward::grad_h_res>("grad_h_res", "gradHRes", kCoefficient, "T,R").WithResidual(),
    In<&PreBackward::inv_rms>("inv_rms", "invRms", kCoefficient, "T"),
    In<&PreBackward::h_mix>("h_mix", "hMix", kCoefficient, "T,F"),
    In<&PreBackward::h_pre>("h_pre", "hPre", kCoefficient, "T,n"),
    In<&PreBackward::h_post>("h_post", "hPost", kCoefficient, "T,n"),
    In<&PreBackward::gamma>("gamma", "gammaOptional", kCoefficient, "n,D").Optional(),
    In<&PreBackward::grad_x_post>("grad_x_post", "gradXPostOptional", kActivation, "T,n,D")
        .Optional()
        .GradientOf(nullptr),
    Out<&PreBackward::grad_x>("grad_x", "gradX", kActivation, "T,n,D"),
    Out<&PreBackward::grad_phi>("grad_phi", "gradPhi", kCoefficient, "F,K"),
    Out<&PreBackward::grad_alpha>("grad_alpha", "gradAlpha", kCoefficient, "A"),
    Out<&PreBackward::grad_bias>("grad_bias", "gradBias", kCoefficient, "F"),
    Out<&PreBackward::grad_gamma>("grad_gamma", "gradGamma", kCoefficient, "n,D").With("gamma"),
};
inline constexpr Attribute kMhcPreBackwardAttributes[] = {
    PreEps<&PreBackward::options>(),
    PostMultiplier<&PreBackward::options>(),
    Number<&PreBackward::residual>("residual", nullptr, "residual"),
    OpImplMode<&PreBackward::options>(),
};
inline constexpr PassSpec kMhcPreBackward = {.op = "mhc_pre",
                                             .name = "mhc_pre_backward",
                                             .arguments = kMhcPreBackwardArguments,
                                             .attributes = kMhcPreBackwardAttributes,
                                             .limits = kPreLimits,
                                             .rows = Rows::kGates};
SPEC_IS_SOUND(kMhcPreBackward);

}  // namespace anabranch::specs

#endif  // ANABRANCH_SRC_OPS_MHC_PRE_SPEC_H_
