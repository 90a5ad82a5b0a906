// The descriptions of attn_res_prepare, attn_res_merge and their backwards;
// include/anabranch/attn_res_two_phase.h has the formulas.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_TWO_PHASE_SPEC_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_TWO_PHASE_SPEC_H_

#include <initializer_list>
#include <vector>

#include "anabranch/attn_res_two_phase.h"
#include "src/core/check.h"
#include "src/core/sizes.h"
#include "src/core/spec.h"
#include "src/ops/attn_res/attributes.h"

namespace anabranch::specs {

// Hatch: S and D are those of queries; without blocks the tokens are those of the first tensor of
// `parts` that is given: [S, *, D], then [S, *].
void LeadByQueries(Checker& c, const TensorView& queries, const std::vector<TensorView>& blocks,
                   std::initializer_list<NamedTensor> parts, Sizes* sizes, Face face);

using Prepare = AttnResPrepareArgs;
inline constexpr Argument kAttnResPrepareArguments[] = {
    In<&Prepare::blocks>("blocks", "blocksOptional", kActivation, "T,D").Fewest(0),
    In<&Prepare::queries>("queries", "queries", kParameter, "S,D"),
    In<&Prepare::rmsnorm_gamma>("rmsnorm_gamma", "rmsnormGammaOptional", kParameter, "D|1,D|S,D")
        .Optional(),
    Out<&Prepare::o>("o", "o", kCoefficient, "S,T,D"),
    Out<&Prepare::m>("m", "m", kCoefficient, "S,T"),
    Out<&Prepare::l>("l", "l", kCoefficient, "S,T"),
};
inline constexpr auto kAttnResPrepareAttributes = ScoreAttributes<Prepare>();
inline constexpr PassSpec kAttnResPrepare = {
    .op = "attn_res_prepare",
    .name = "attn_res_prepare",
    .arguments = kAttnResPrepareArguments,
    .attributes = kAttnResPrepareAttributes,
    .leader = "blocks",
    .stand_in = "queries",
    .lead = [](Checker& c, void* args, Sizes* sizes, Face face) {
      const auto& a = *static_cast<Prepare*>(args);
      LeadByQueries(c, a.queries, a.blocks, {{"o", a.o}, {"m", a.m}, {"l", a.l}}, sizes, face);
    }};
SPEC_IS_SOUND(kAttnResPrepare);

using PrepareBackward = AttnResPrepareBackwardArgs;
inline constexpr Argument kAttnResPrepareBackwardArguments[] = {
    In<&PrepareBackward::grad_o>("grad_o", "gradO", kCoefficient, "S,T,D"),
    In<&PrepareBackward::grad_m>("grad_m", "gradM", kCoefficient, "S,T"),
    In<&PrepareBackward::grad_l>("grad_l", "gradL", kCoefficient, "S,T"),
    In<&PrepareBackward::blocks>("blocks", "blocksOptional", kActivation, "T,D").Fewest(0),
    In<&PrepareBackward::queries>("queries", "queries", kParameter, "S,D"),
    In<&PrepareBackward::rmsnorm_gamma>("rmsnorm_gamma", "rmsnormGammaOptional", kParameter,
                                        "D|1,D|S,D")
        .Optional(),
    Out<&PrepareBackward::grad_queries>("grad_queries", "gradQueries", kSame, {}).Like("queries"),
    Out<&PrepareBackward::grad_rmsnorm_gamma>("grad_rmsnorm_gamma", "gradRmsnormGamma", kSame, {})
        .With("rmsnorm_gamma")
        .Like("rmsnorm_gamma")
        .RequiredIf(Field<&PrepareBackward::enable_rmsnorm>),
    Out<&PrepareBackward::grad_blocks>("grad_blocks", "gradBlocksOptional", kActivation, "T,D")
        .Like("blocks"),
};
inline constexpr auto kAttnResPrepareBackwardAttributes = ScoreAttributes<PrepareBackward>();
inline constexpr PassSpec kAttnResPrepareBackward = {
    .op = "attn_res_prepare",
    .name = "attn_res_prepare_backward",
    .arguments = kAttnResPrepareBackwardArguments,
    .attributes = kAttnResPrepareBackwardAttributes,
    .leader = "blocks",
    .stand_in = "queries",
    .lead = [](Checker& c, void* args, Sizes* sizes, Face face) {
      const auto& a = *static_cast<PrepareBackward*>(args);
      const bool in_c = face == Face::kC;
      LeadByQueries(c, a.queries, a.blocks,
                    {{in_c ? "gradO" : "grad_o", a.grad_o},
                     {in_c ? "gradM" : "grad_m", a.grad_m},
                     {in_c ? "gradL" : "grad_l", a.grad_l}},
                    sizes, face);
    }};
SPEC_IS_SOUND(kAttnResPrepareBackward);

inline constexpr Limit kAttnResMergeLimits[] = {{Dim::kHidden, 1, INT64_MAX}};

using Merge = AttnResMergeArgs;
inline constexpr Argument kAttnResMergeArguments[] = {
    In<&Merge::o>("o", "o", kCoefficient, "T,D"),
    In<&Merge::m>("m", "m", kCoefficient, "T"),
    In<&Merge::l>("l", "l", kCoefficient, "T"),
    In<&Merge::v>("v", "v", kActivation, "T,D"),
    In<&Merge::query>("query", "query", kParameter, "D|1,D"),
    In<&Merge::rmsnorm_gamma>("rmsnorm_gamma", "rmsnormGammaOptional", kParameter, "D|1,D")
        .Optional(),
    Out<&Merge::h>("h", "h", kActivation, "T,D"),
};
inline constexpr auto kAttnResMergeAttributes = ScoreAttributes<Merge>();
inline constexpr PassSpec kAttnResMerge = {.op = "attn_res_merge",
                                           .name = "attn_res_merge",
                                           .arguments = kAttnResMergeArguments,
                                           .attributes = kAttnResMergeAttributes,
                                           .limits = kAttnResMergeLimits,
                                           .leader = "v"};
SPEC_IS_SOUND(kAttnResMerge);

using MergeBackward = AttnResMergeBackwardArgs;
inline constexpr Argument kAttnResMergeBackwardArguments[] = {
    In<&MergeBackward::grad_h>("grad_h", "gradH", kActivation, "T,D"),
    In<&MergeBackward::o>("o", "o", kCoefficient, "T,D"),
    In<&MergeBackward::m>("m", "m", kCoefficient, "T"),
    In<&MergeBackward::l>("l", "l", kCoefficient, "T"),
    In<&MergeBackward::v>("v", "v", kActivation, "T,D"),
    In<&MergeBackward::query>("query", "query", kParameter, "D|1,D"),
    In<&MergeBackward::rmsnorm_gamma>("rmsnorm_gamma", "rmsnormGammaOptional", kParameter, "D|1,D")
        .Optional(),
    Out<&MergeBackward::grad_o>("grad_o", "gradO", kCoefficient, "T,D"),
    Out<&MergeBackward::grad_m>("grad_m", "gradM", kCoefficient, "T"),
    Out<&MergeBackward::grad_l>("grad_l", "gradL", kCoefficient, "T"),
    Out<&MergeBackward::grad_v>("grad_v", "gradV", kActivation, "T,D"),
    Out<&MergeBackward::grad_query>("grad_query", "gradQuery", kSame, {}).Like("query"),
    Out<&MergeBackward::grad_rmsnorm_gamma>("grad_rmsnorm_gamma", "gradRmsnormGamma", kSame, {})
        .With("rmsnorm_gamma")
        .Like("rmsnorm_gamma")
        .RequiredIf(Field<&MergeBackward::enable_rmsnorm>),
};
inline constexpr auto kAttnResMergeBackwardAttributes = ScoreAttributes<MergeBackward>();
inline constexpr PassSpec kAttnResMergeBackward = {.op = "attn_res_merge",
                                                   .name = "attn_res_merge_backward",
                                                   .arguments = kAttnResMergeBackwardArguments,
                                                   .attributes = kAttnResMergeBackwardAttributes,
                                                   .limits = kAttnResMergeLimits,
                                                   .leader = "v"};
SPEC_IS_SOUND(kAttnResMergeBackward);

}  // namespace anabranch::specs

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_TWO_PHASE_SPEC_H_
