// The description of mhc_pre and its backward; include/anabranch/mhc_pre.h has the formula.
#ifndef ANABRANCH_SRC_OPS_MHC_PRE_SPEC_H_
#define ANABRANCH_SRC_OPS_MHC_PRE_SPEC_H_

#include "anabranch/mhc_pre.h"
#include "src/core/spec.h"

namespace anabranch::specs {

inline constexpr Limit kMhcPreLimits[] = {{Dim::kStreams, 1, 16},
                                          {Dim::kHidden, 1, INT64_MAX / 16}};

inline constexpr Argument kMhcPreArguments[] = {
    In<&MhcPreArgs::x>("x", "x", kActivation, "T,n,D"),
    In<&MhcPreArgs::phi>("phi", "phi", kCoefficient, "F,K"),
    In<&MhcPreArgs::alpha>("alpha", "alpha", kCoefficient, "A"),
    In<&MhcPreArgs::bias>("bias", "bias", kCoefficient, "F"),
    In<&MhcPreArgs::gamma>("gamma", "gamma", kCoefficient, "n,D").Optional(),
    Out<&MhcPreArgs::h_in>("h_in", "hIn", kActivation, "T,D"),
    Out<&MhcPreArgs::h_post>("h_post", "hPost", kCoefficient, "T,n"),
    Out<&MhcPreArgs::h_res>("h_res", "hRes", kCoefficient, "T,R").WithResidual(),
    Out<&MhcPreArgs::inv_rms>("inv_rms", "invRms", kCoefficient, "T").Group(1),
    Out<&MhcPreArgs::h_mix>("h_mix", "hMix", kCoefficient, "T,F").Group(1),
    Out<&MhcPreArgs::h_pre>("h_pre", "hPre", kCoefficient, "T,n").Group(1),
};
inline constexpr Attribute kMhcPreAttributes[] = {
    Number<&MhcPreArgs::options, &MhcOptions::norm_eps>("options.norm_eps", "normEps", "norm_eps")
        .NonNegative(),
    Number<&MhcPreArgs::options, &MhcOptions::hc_eps>("options.hc_eps", "hcEps", "hc_eps")
        .NonNegative(),
    Number<&MhcPreArgs::options, &MhcOptions::post_multiplier>("options.post_multiplier", nullptr,
                                                               nullptr)
        .Finite(),
    Number<&MhcPreArgs::residual>("residual", nullptr, "residual"),
    Number<&MhcPreArgs::options, &MhcOptions::op_impl_mode>("options.op_impl_mode", "opImplMode",
                                                            "op_impl_mode")
        .Range(0, 1),
};
inline constexpr Ask kMhcPreAsks[] = {{"caches", 1}};
inline constexpr PassSpec kMhcPre = {.op = "mhc_pre",
                                     .name = "mhc_pre",
                                     .arguments = kMhcPreArguments,
                                     .attributes = kMhcPreAttributes,
                                     .asks = kMhcPreAsks,
                                     .limits = kMhcPreLimits,
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
    In<&PreBackward::gamma>("gamma", "gamma", kCoefficient, "n,D").Optional(),
    In<&PreBackward::grad_x_post>("grad_x_post", "gradXPost", kActivation, "T,n,D")
        .Optional()
        .GradientOf(nullptr),
    Out<&PreBackward::grad_x>("grad_x", "gradX", kActivation, "T,n,D"),
    Out<&PreBackward::grad_phi>("grad_phi", "gradPhi", kCoefficient, "F,K"),
    Out<&PreBackward::grad_alpha>("grad_alpha", "gradAlpha", kCoefficient, "A"),
    Out<&PreBackward::grad_bias>("grad_bias", "gradBias", kCoefficient, "F"),
    Out<&PreBackward::grad_gamma>("grad_gamma", "gradGamma", kCoefficient, "n,D").With("gamma"),
};
inline constexpr Attribute kMhcPreBackwardAttributes[] = {
    Number<&PreBackward::options, &MhcOptions::norm_eps>("options.norm_eps", nullptr, nullptr)
        .NonNegative(),
    Number<&PreBackward::options, &MhcOptions::hc_eps>("options.hc_eps", "hcEps", "hc_eps")
        .NonNegative(),
    Number<&PreBackward::options, &MhcOptions::post_multiplier>("options.post_multiplier", nullptr,
                                                                nullptr)
        .Finite(),
    Number<&PreBackward::residual>("residual", nullptr, "residual"),
    Number<&PreBackward::options, &MhcOptions::op_impl_mode>("options.op_impl_mode", "opImplMode",
                                                             "op_impl_mode")
        .Range(0, 1),
};
inline constexpr PassSpec kMhcPreBackward = {.op = "mhc_pre",
                                             .name = "mhc_pre_backward",
                                             .arguments = kMhcPreBackwardArguments,
                                             .attributes = kMhcPreBackwardAttributes,
                                             .limits = kMhcPreLimits,
                                             .rows = Rows::kGates};
SPEC_IS_SOUND(kMhcPreBackward);

}  // namespace anabranch::specs

#endif  // ANABRANCH_SRC_OPS_MHC_PRE_SPEC_H_
