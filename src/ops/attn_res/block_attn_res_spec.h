// The description of block_attn_res and its backward; include/anabranch/block_attn_res.h has the
// formula.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_BLOCK_ATTN_RES_SPEC_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_BLOCK_ATTN_RES_SPEC_H_

#include "anabranch/block_attn_res.h"
#include "src/core/spec.h"
#include "src/ops/attn_res/attributes.h"

namespace anabranch::specs {

inline constexpr Limit kBlockAttnResLimits[] = {{Dim::kHidden, 1, INT64_MAX}};

using BlockAttnRes = BlockAttnResArgs;
inline constexpr Argument kBlockAttnResArguments[] = {
    In<&BlockAttnRes::blocks>("blocks", "blocks", kActivation, "T,D").Source(),
    In<&BlockAttnRes::partial_block>("partial_block", "partialBlockOptional", kActivation, "T,D")
        .Optional()
        .Source(),
    In<&BlockAttnRes::proj_weight>("proj_weight", "projWeight", kParameter, "D|1,D"),
    In<&BlockAttnRes::rmsnorm_gamma>("rmsnorm_gamma", "rmsnormGammaOptional", kParameter, "D|1,D")
        .Optional(),
    Out<&BlockAttnRes::h>("h", "h", kActivation, "T,D"),
    Out<&BlockAttnRes::rms_cache>("rms_cache", "rmsOptional", kCoefficient, "T,L,1|T,L")
        .Optional()
        .AskedBy(1),
    Out<&BlockAttnRes::alpha_cache>("alpha_cache", "alphaOptional", kCoefficient, "T,L")
        .Optional()
        .AskedBy(2),
};
inline constexpr auto kBlockAttnResAttributes = ScoreAttributes<BlockAttnRes>();
inline constexpr Ask kBlockAttnResAsks[] = {{"rms_out", 1}, {"alpha_out", 2}};
inline constexpr PassSpec kBlockAttnRes = {.op = "block_attn_res",
                                           .name = "block_attn_res",
                                           .arguments = kBlockAttnResArguments,
                                           .attributes = kBlockAttnResAttributes,
                                           .asks = kBlockAttnResAsks,
                                           .limits = kBlockAttnResLimits,
                                           .leader = "blocks"};
SPEC_IS_SOUND(kBlockAttnRes);

using BlockAttnBackward = BlockAttnResBackwardArgs;
inline constexpr Argument kBlockAttnResBackwardArguments[] = {
    In<&BlockAttnBackward::grad_h>("grad_h", "gradH", kActivation, "T,D"),
    In<&BlockAttnBackward::blocks>("blocks", "blocks", kActivation, "T,D").Source(),
    In<&BlockAttnBackward::partial_block>("partial_block", "partialBlockOptional", kActivation,
                                          "T,D")
        .Optional()
        .Source(),
    In<&BlockAttnBackward::proj_weight>("proj_weight", "projWeight", kParameter, "D|1,D"),
    In<&BlockAttnBackward::rmsnorm_gamma>("rmsnorm_gamma", "rmsnormGammaOptional", kParameter,
                                          "D|1,D")
        .Optional(),
    In<&BlockAttnBackward::alpha_cache>("alpha_cache", "alpha", kCoefficient, "T,L"),
    In<&BlockAttnBackward::rms_cache>("rms_cache", "rmsOptional", kCoefficient, "T,L,1|T,L")
        .Optional(),
    Out<&BlockAttnBackward::grad_partial_block>("grad_partial_block", "gradPartialBlock",
                                                kActivation, "T,D")
        .With("partial_block"),
    Out<&BlockAttnBackward::grad_proj_weight>("grad_proj_weight", "gradProjWeight", kSame, {})
        .Like("proj_weight"),
    Out<&BlockAttnBackward::grad_rmsnorm_gamma>("grad_rmsnorm_gamma", "gradRmsnormGamma", kSame, {})
        .With("rmsnorm_gamma")
        .Like("rmsnorm_gamma")
        .RequiredIf(Field<&BlockAttnBackward::enable_rmsnorm>),
    Out<&BlockAttnBackward::grad_blocks>("grad_blocks", "gradBlocks", kActivation, "T,D")
        .Like("blocks"),
};
inline constexpr auto kBlockAttnResBackwardAttributes = ScoreAttributes<BlockAttnBackward>();
inline constexpr PassSpec kBlockAttnResBackward = {.op = "block_attn_res",
                                                   .name = "block_attn_res_backward",
                                                   .arguments = kBlockAttnResBackwardArguments,
                                                   .attributes = kBlockAttnResBackwardAttributes,
                                                   .limits = kBlockAttnResLimits,
                                                   .leader = "blocks"};
SPEC_IS_SOUND(kBlockAttnResBackward);

}  // namespace anabranch::specs

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_BLOCK_ATTN_RES_SPEC_H_
