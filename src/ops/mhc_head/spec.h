// The description of mhc_head and its backward; include/anabranch/mhc_head.h has the formula.
#ifndef ANABRANCH_SRC_OPS_MHC_HEAD_SPEC_H_
#define ANABRANCH_SRC_OPS_MHC_HEAD_SPEC_H_

#include "anabranch/mhc_head.h"
#include "src/core/spec.h"
#include "src/ops/mhc_spec.h"

namespace anabranch::specs {

inline constexpr Argument kMhcHeadArguments[] = {
    In<&MhcHeadArgs::x>("x", "x", kActivation, "T,n,D"),
    In<&MhcHeadArgs::fn>("fn", "fn", kCoefficient, "F,K"),
    In<&MhcHeadArgs::base>("base", "base", kCoefficient, "F"),
    In<&MhcHeadArgs::scale>("scale", "scale", kCoefficient, "1"),
    Out<&MhcHeadArgs::y>("y", "y", kActivation, "T,D"),
    Out<&MhcHeadArgs::inv_rms>("inv_rms", "invRms", kCoefficient, "T").Group(1),
    Out<&MhcHeadArgs::h_mix>("h_mix", "hMix", kCoefficient, "T,n").Group(1),
    Out<&MhcHeadArgs::w>("w", "w", kCoefficient, "T,n").Group(1),
};
inline constexpr Attribute kMhcHeadAttributes[] = {
    NormEps<&MhcHeadArgs::options>("normEps", "norm_eps"),
    PreEps<&MhcHeadArgs::options>(),
};
inline constexpr Ask kMhcHeadAsks[] = {{"caches", 1}};
inline constexpr PassSpec kMhcHead = {.op = "mhc_head",
                                      .name = "mhc_head",
                                      .arguments = kMhcHeadArguments,
                                      .attributes = kMhcHeadAttributes,
                                      .asks = kMhcHeadAsks,
                                      .limits = kPreLimits,
                                      .rows = Rows::kHead,
                                      .residual = Residual::kNone};
SPEC_IS_SOUND(kMhcHead);

using HeadBackward = MhcHeadBackwardArgs;
inline constexpr Argument kMhcHeadBackwardArguments[] = {
    In<&HeadBackward::grad_y>("grad_y", "gradY", kActivation, "T,D"),
    In<&HeadBackward::x>("x", "x", kActivation, "T,n,D"),
    In<&HeadBackward::fn>("fn", "fn", kCoefficient, "F,K"),
    In<&HeadBackward::scale>("scale", "scale", kCoefficient, "1"),
    In<&HeadBackward::inv_rms>("inv_rms", "invRms", kCoefficient, "T"),
    In<&HeadBackward::h_mix>("h_mix", "hMix", kCoefficient, "T,n"),
    In<&HeadBackward::w>("w", "w", kCoefficient, "T,n"),
    Out<&HeadBackward::grad_x>("grad_x", "gradX", kActivation, "T,n,D"),
    Out<&HeadBackward::grad_fn>("grad_fn", "gradFn", kCoefficient, "F,K"),
    Out<&HeadBackward::grad_base>("grad_base", "gradBase", kCoefficient, "F"),
    Out<&HeadBackward::grad_scale>("grad_scale", "gradScale", kCoefficient, "1"),
};
inline constexpr Attribute kMhcHeadBackwardAttributes[] = {
    PreEps<&HeadBackward::options>(),
};
inline constexpr PassSpec kMhcHeadBackward = {.op = "mhc_head",
                                              .name = "mhc_head_backward",
                                              .arguments = kMhcHeadBackwardArguments,
                                              .attributes = kMhcHeadBackwardAttributes,
                                              .limits = kPreLimits,
                                              .rows = Rows::kHead,
                                              .residual = Residual::kNone};
SPEC_IS_SOUND(kMhcHeadBackward);

}  // namespace anabranch::specs

#endif  // ANABRANCH_SRC_OPS_MHC_HEAD_SPEC_H_
