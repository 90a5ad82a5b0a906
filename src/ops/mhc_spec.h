// What the descriptions of the mHC operators have in common: limits, and the attributes that are
// fields of MhcOptions.
#ifndef ANABRANCH_SRC_OPS_MHC_SPEC_H_
#define ANABRANCH_SRC_OPS_MHC_SPEC_H_

#include <cstdint>

#include "anabranch/mhc_options.h"
#include "src/core/check.h"
#include "src/core/spec.h"

namespace anabranch::specs {

inline constexpr int kMaxPreStreams = 16;
inline constexpr std::int64_t kMaxIterations = 1000000;

inline constexpr Limit kPreLimits[] = {{Dim::kStreams, 1, kMaxPreStreams},
                                       {Dim::kHidden, 1, INT64_MAX / 16}};

// `kOptions`: the member that holds them, &MhcPreArgs::options. A null name: not an argument there.
template <auto kOptions>
constexpr Attribute NormEps(const char* c, const char* python) {
  return Number<kOptions, &MhcOptions::norm_eps>("options.norm_eps", c, python).NonNegative();
}
template <auto kOptions>
constexpr Attribute PreEps() {
  return Number<kOptions, &MhcOptions::pre_eps>("options.pre_eps", "hcEps", "hc_eps").NonNegative();
}
template <auto kOptions>
constexpr Attribute SinkhornEps(const char* c, const char* python) {
  return Number<kOptions, &MhcOptions::sinkhorn_eps>("options.sinkhorn_eps", c, python)
      .NonNegative();
}
// What C and Python call hc_eps is both of them in an operator that fuses mhc_pre and Sinkhorn.
template <auto kOptions>
constexpr Attribute BothEps() {
  return PreEps<kOptions>().AlsoSets(&Field<kOptions, &MhcOptions::sinkhorn_eps>);
}
template <auto kOptions>
constexpr Attribute PostMultiplier() {
  return Number<kOptions, &MhcOptions::post_multiplier>("options.post_multiplier", nullptr, nullptr)
      .Finite();
}
template <auto kOptions>
constexpr Attribute OpImplMode() {
  return Number<kOptions, &MhcOptions::op_impl_mode>("options.op_impl_mode", "opImplMode",
                                                     "op_impl_mode")
      .Range(0, 1);
}
template <auto kOptions>
constexpr Attribute NumIters() {
  return Number<kOptions, &MhcOptions::num_iters>("options.num_iters", "numIters", "num_iters")
      .Range(1, kMaxIterations);
}
// As above where caches may say the number instead: checked by CheckIterations then.
template <auto kOptions>
constexpr Attribute NumItersUnlessCached() {
  return Number<kOptions, &MhcOptions::num_iters>("options.num_iters", "numIters", "num_iters");
}
template <auto kOptions>
constexpr Attribute ClampLow(const char* python) {
  return Number<kOptions, &MhcOptions::clamp_low>("options.clamp_low", nullptr, python);
}
template <auto kOptions>
constexpr Attribute ClampHigh(const char* python) {
  return Number<kOptions, &MhcOptions::clamp_high>("options.clamp_high", nullptr, python);
}

void CheckIterations(Checker& c, const MhcOptions& options, Face face);

// Sinkhorn's clamp: (clamp_low, clamp_high) with low <= high, and no NaN.
void CheckClamp(Checker& c, const MhcOptions& options, Face face);

// Sinkhorn's caches that a backward is given: an even number of normalisations, of as many
// iterations as the attribute may say.
void CheckSteps(Checker& c, const char* name, const TensorView& sum_out);

}  // namespace anabranch::specs

#endif  // ANABRANCH_SRC_OPS_MHC_SPEC_H_
