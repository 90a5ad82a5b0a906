#include "src/ops/mhc_spec.h"

#include <string>

namespace anabranch::specs {

void CheckIterations(Checker& c, const MhcOptions& options, Face face) {
  const char* name = face == Face::kCpp ? "options.num_iters"
                     : face == Face::kC ? "numIters"
                                        : "num_iters";
  if (!c.ok() || (options.num_iters >= 1 && options.num_iters <= kMaxIterations)) return;
  c.Invalid(std::string(name) + " is " + std::to_string(options.num_iters) + ", expected 1.." +
            std::to_string(kMaxIterations));
}

void CheckClamp(Checker& c, const MhcOptions& options, Face face) {
  if (!c.ok() || options.clamp_low <= options.clamp_high) return;  // false for NaN
  c.Invalid(std::string(face == Face::kCpp ? "options.clamp" : "clamp") + " is (" +
            std::to_string(options.clamp_low) + ", " + std::to_string(options.clamp_high) +
            "), expected low <= high");
}

void CheckSteps(Checker& c, const char* name, const TensorView& sum_out) {
  if (!c.ok() || !sum_out.defined()) return;
  const std::int64_t steps = sum_out.sizes[0];
  constexpr std::int64_t kMost = 2 * kMaxIterations;
  if (steps == kUnknown || (steps >= 2 && steps <= kMost && steps % 2 == 0)) return;
  c.Invalid(std::string(name) + " has shape " + ToString(sum_out.sizes) +
            ", expected an even number of normalisations, 2.." + std::to_string(kMost));
}

}  // namespace anabranch::specs
