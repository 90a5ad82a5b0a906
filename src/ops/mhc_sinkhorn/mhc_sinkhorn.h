// Inside of mhc_sinkhorn: see include/anabranch/mhc_sinkhorn.h for the arguments and the formula.
#ifndef ANABRANCH_SRC_OPS_MHC_SINKHORN_MHC_SINKHORN_H_
#define ANABRANCH_SRC_OPS_MHC_SINKHORN_MHC_SINKHORN_H_

#include "anabranch/mhc_sinkhorn.h"
#include "src/core/spec.h"
#include "src/core/tokens.h"

namespace anabranch {

inline constexpr int kMaxSinkhornStreams = 16;

// null -> dtype -> rank and shape -> attributes -> overlap.
Status Validate(const MhcSinkhornArgs& args, Face face);
Status Validate(const MhcSinkhornBackwardArgs& args, Face face);

// The definition, in double precision, on FP64 tensors; arguments have been validated. Scratch: so
// many doubles.
void MhcSinkhornReference(const MhcSinkhornArgs& args, double* scratch);
void MhcSinkhornBackwardReference(const MhcSinkhornBackwardArgs& args, double* scratch);
std::int64_t MhcSinkhornScratch(const MhcSinkhornArgs& args);
std::int64_t MhcSinkhornBackwardScratch(const MhcSinkhornBackwardArgs& args);

inline bool Clamps(const MhcOptions& o) { return o.clamp_low != 0 || o.clamp_high != 0; }

// Reads a validated matrix tensor [*, n, n] or [*, n*n].
struct SinkhornShape {
  SinkhornShape(const TensorView& matrices, std::int64_t given_n);
  int leading;
  std::int64_t tokens;
  std::int64_t n;
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_MHC_SINKHORN_MHC_SINKHORN_H_
