#include "src/core/mhc_check.h"

#include <cmath>

namespace anabranch {

void CheckPreOptions(Checker& c, const MhcOptions& options) {
  c.NonNegative("options.norm_eps", options.norm_eps);
  c.NonNegative("options.hc_eps", options.hc_eps);
  if (c.ok() && !std::isfinite(options.post_multiplier)) {
    c.Invalid("options.post_multiplier is " + std::to_string(options.post_multiplier) +
              ", expected a finite number");
  }
  c.InRange("options.op_impl_mode", options.op_impl_mode, 0, 1);
  // InRange lets kUnknown pass, which is no mode.
  if (c.ok() && options.op_impl_mode < 0) {
    c.Invalid("options.op_impl_mode is " + std::to_string(options.op_impl_mode) +
              ", expected 0..1");
  }
}

void CheckPreSinkhornOptions(Checker& c, const MhcOptions& options) {
  CheckPreOptions(c, options);
  if (c.ok() && !(options.clamp_low <= options.clamp_high)) {
    c.Invalid("options.clamp is (" + std::to_string(options.clamp_low) + ", " +
              std::to_string(options.clamp_high) + "), expected clamp_low <= clamp_high");
  }
}

void CheckIterations(Checker& c, const MhcOptions& options) {
  constexpr std::int64_t kMaxIterations = 1000000;
  if (c.ok() && (options.num_iters < 1 || options.num_iters > kMaxIterations)) {
    c.Invalid("options.num_iters is " + std::to_string(options.num_iters) + ", expected 1.." +
              std::to_string(kMaxIterations));
  }
}

void CheckTogether(Checker& c, const TensorView& sum_out, const TensorView& norm_out) {
  if (c.ok() && sum_out.defined() != norm_out.defined()) {
    c.Invalid(std::string(sum_out.defined() ? "norm_out" : "sum_out") +
              " is absent, expected both of sum_out and norm_out or none of them");
  }
}

void CheckCaches(Checker& c, const PreSinkhornCaches& caches) {
  CheckTogether(c, caches.sum_out, caches.norm_out);
  const NamedTensor wanted[] = {
      {"h_pre", caches.h_pre}, {"h_mix", caches.h_mix}, {"inv_rms", caches.inv_rms}};
  bool any = caches.sum_out.defined();
  for (const NamedTensor& cache : wanted) any = any || cache.tensor.defined();
  for (const NamedTensor& cache : wanted) {
    if (c.ok() && any && !cache.tensor.defined()) {
      c.Invalid(cache.name.str() +
                " is absent, expected all of h_pre, h_mix and inv_rms or none of the caches");
    }
  }
}

}  // namespace anabranch
