// The attributes that all attention residual operators have.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_ATTRIBUTES_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_ATTRIBUTES_H_

#include <array>

#include "src/core/spec.h"

namespace anabranch::specs {

template <class Args>
constexpr std::array<Attribute, 3> ScoreAttributes() {
  return {Number<&Args::scale>("scale", "scale", "scale").Finite(),
          Number<&Args::rmsnorm_eps>("rmsnorm_eps", "rmsnormEps", "rmsnorm_eps").NonNegative(),
          Number<&Args::enable_rmsnorm>("enable_rmsnorm", "enableRmsnorm", "enable_rmsnorm")};
}

}  // namespace anabranch::specs

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_ATTRIBUTES_H_
