// The description of mhc_post and its backward; include/anabranch/mhc_post.h has the formula.
#ifndef ANABRANCH_SRC_OPS_MHC_POST_SPEC_H_
#define ANABRANCH_SRC_OPS_MHC_POST_SPEC_H_

#include "anabranch/mhc_post.h"
#include "src/core/spec.h"
#include "src/kernels/stream_mix.h"

namespace anabranch::specs {

inline constexpr Limit kMhcPostLimits[] = {{Dim::kStreams, 1, kMaxStreams},
                                           {Dim::kHidden, 1, INT64_MAX}};

inline constexpr Argument kMhcPostArguments[] = {
    In<&MhcPostArgs::x>("x", "x", kActivation, "T,n,D"),
    In<&MhcPostArgs::h_res>("h_res", "hRes", kCoefficient, "T,n,n|T,n*n").Optional(),
    In<&MhcPostArgs::h_out>("h_out", "hOut", kActivation, "T,D"),
    In<&MhcPostArgs::h_post>("h_post", "hPost", kCoefficient, "T,n"),
    Out<&MhcPostArgs::y>("y", "out", kActivation, "T,n,D").MayBe("x"),
};
inline constexpr PassSpec kMhcPost = {
    .op = "mhc_post", .name = "mhc_post", .arguments = kMhcPostArguments, .limits = kMhcPostLimits};
SPEC_IS_SOUND(kMhcPost);

using PostBackward = MhcPostBackwardArgs;
inline constexpr Argument kMhcPostBackwardArguments[] = {
    In<&PostBackward::grad_output>("grad_output", "gradOutput", kActivation, "T,n,D")
        .GradientOf("y"),
    In<&PostBackward::x>("x", "x", kActivation, "T,n,D"),
    In<&PostBackward::h_res>("h_res", "hRes", kCoefficient, "T,n,n|T,n*n").Optional(),
    In<&PostBackward::h_out>("h_out", "hOut", kActivation, "T,D"),
    In<&PostBackward::h_post>("h_post", "hPost", kCoefficient, "T,n"),
    Out<&PostBackward::grad_x>("grad_x", "gradX", kActivation, "T,n,D").MayBe("grad_output"),
    Out<&PostBackward::grad_h_res>("grad_h_res", "gradHRes", kCoefficient, "T,n,n|T,n*n")
        .AlsoWith("h_res")
        .Like("h_res"),
    Out<&PostBackward::grad_h_out>("grad_h_out", "gradHOut", kActivation, "T,D"),
    Out<&PostBackward::grad_h_post>("grad_h_post", "gradHPost", kCoefficient, "T,n"),
};
inline constexpr PassSpec kMhcPostBackward = {.op = "mhc_post",
                                              .name = "mhc_post_backward",
                                              .arguments = kMhcPostBackwardArguments,
                                              .limits = kMhcPostLimits};
SPEC_IS_SOUND(kMhcPostBackward);

}  // namespace anabranch::specs

#endif  // ANABRANCH_SRC_OPS_MHC_POST_SPEC_H_
