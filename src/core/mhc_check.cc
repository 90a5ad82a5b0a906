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

}  // namespace anabranch
