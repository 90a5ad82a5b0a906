// The description of mhc_sinkhorn and its backward; include/anabranch/mhc_sinkhorn.h has the
// formula.
#ifndef ANABRANCH_SRC_OPS_MHC_SINKHORN_SPEC_H_
#define ANABRANCH_SRC_OPS_MHC_SINKHORN_SPEC_H_

#include "anabranch/mhc_sinkhorn.h"
#include "src/core/sizes.h"
#include "src/core/spec.h"
#include "src/ops/mhc_sinkhorn/mhc_sinkhorn.h"
#include "src/ops/mhc_spec.h"

namespace anabranch::specs {

inline constexpr Limit kMhcSinkhornLimits[] = {{Dim::kStreams, 1, kMaxSinkhornStreams}};

// Hatch: matrices [*, n, n], or [*, n*n] where the attribute n says what n is.
void LeadByMatrices(Checker& c, const char* name, const TensorView& t, std::int64_t n,
                    Sizes* sizes);
// Hatch: what a clamp and caches ask of the logits of a backward.
void CheckSinkhornLogits(Checker& c, const MhcSinkhornBackwardArgs& args, Face face);

using Sinkhorn = MhcSinkhornArgs;
inline constexpr Argument kMhcSinkhornArguments[] = {
    In<&Sinkhorn::logits>("logits", "x", kCoefficient, "T,n,n|T,n*n"),
    Out<&Sinkhorn::h_res>("h_res", "output", kCoefficient, "T,n,n|T,n*n")
        .Like("logits")
        .MayBe("logits"),
    Out<&Sinkhorn::sum_out>("sum_out", "sumOut", kCoefficient, "2I,T,n").Group(1),
    Out<&Sinkhorn::norm_out>("norm_out", "normOut", kCoefficient, "2I,T,n,n").Group(1),
};
inline constexpr Attribute kMhcSinkhornAttributes[] = {
    NumIters<&Sinkhorn::options>(),
    SinkhornEps<&Sinkhorn::options>("eps", "eps"),
    ClampLow<&Sinkhorn::options>("clamp_low"),
    ClampHigh<&Sinkhorn::options>("clamp_high"),
};
inline constexpr Ask kMhcSinkhornAsks[] = {{"iterates", 1}};
inline constexpr PassSpec kMhcSinkhorn = {
    .op = "mhc_sinkhorn",
    .name = "mhc_sinkhorn",
    .arguments = kMhcSinkhornArguments,
    .attributes = kMhcSinkhornAttributes,
    .asks = kMhcSinkhornAsks,
    .limits = kMhcSinkhornLimits,
    .leader = "logits",
    .iterations = Field<&Sinkhorn::options, &MhcOptions::num_iters>,
    .lead =
        [](Checker& c, void* args, Sizes* sizes, Face face) {
          LeadByMatrices(c, face == Face::kC ? "x" : "logits", Field<&Sinkhorn::logits>(args),
                         Field<&Sinkhorn::n>(args), sizes);
        },
    .more =
        [](Checker& c, void* args, const Sizes& /*sizes*/, Face face) {
          CheckClamp(c, Field<&Sinkhorn::options>(args), face);
          c.InRange("row_padding", Field<&Sinkhorn::row_padding>(args), 0, kMaxSinkhornStreams);
        }};
SPEC_IS_SOUND(kMhcSinkhorn);

using SinkhornBackward = MhcSinkhornBackwardArgs;
inline constexpr Argument kMhcSinkhornBackwardArguments[] = {
    In<&SinkhornBackward::grad_h_res>("grad_h_res", "gradOutput", kCoefficient, "T,n,n|T,n*n"),
    In<&SinkhornBackward::logits>("logits", "logits", kCoefficient, "T,n,n|T,n*n").Optional(),
    In<&SinkhornBackward::sum_out>("sum_out", "sumOut", kCoefficient, "2I,T,n").Group(1),
    In<&SinkhornBackward::norm_out>("norm_out", "normOut", kCoefficient, "2I,T,n,n").Group(1),
    Out<&SinkhornBackward::grad_logits>("grad_logits", "out", kCoefficient, "T,n,n|T,n*n")
        .Like("grad_h_res")
        .MayBe("grad_h_res"),
};
inline constexpr Attribute kMhcSinkhornBackwardAttributes[] = {
    NumIters<&SinkhornBackward::options>(),
    SinkhornEps<&SinkhornBackward::options>("eps", "eps"),
    ClampLow<&SinkhornBackward::options>("clamp_low"),
    ClampHigh<&SinkhornBackward::options>("clamp_high"),
};
inline constexpr PassSpec kMhcSinkhornBackward = {
    .op = "mhc_sinkhorn",
    .name = "mhc_sinkhorn_backward",
    .arguments = kMhcSinkhornBackwardArguments,
    .attributes = kMhcSinkhornBackwardAttributes,
    .limits = kMhcSinkhornLimits,
    .leader = "grad_h_res",
    .iterations = Field<&SinkhornBackward::options, &MhcOptions::num_iters>,
    .lead =
        [](Checker& c, void* args, Sizes* sizes, Face face) {
          CheckSinkhornLogits(c, *static_cast<SinkhornBackward*>(args), face);
          LeadByMatrices(c, face == Face::kC ? "gradOutput" : "grad_h_res",
                         Field<&SinkhornBackward::grad_h_res>(args),
                         Field<&SinkhornBackward::n>(args), sizes);
        },
    .more = [](Checker& c, void* args, const Sizes& /*sizes*/,
               Face face) { CheckClamp(c, Field<&SinkhornBackward::options>(args), face); }};
SPEC_IS_SOUND(kMhcSinkhornBackward);

}  // namespace anabranch::specs

#endif  // ANABRANCH_SRC_OPS_MHC_SINKHORN_SPEC_H_
