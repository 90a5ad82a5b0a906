// Inside of mhc_sinkhorn: see include/anabranch/mhc_sinkhorn.h for the arguments and the formula.
#ifndef ANABRANCH_SRC_OPS_MHC_SINKHORN_MHC_SINKHORN_H_
#define ANABRANCH_SRC_OPS_MHC_SINKHORN_MHC_SINKHORN_H_

#include "anabranch/mhc_sinkhorn.h"
#include "src/core/tokens.h"

namespace anabranch {

inline constexpr int kMaxSinkhornStreams = 16;

// null -> dtype -> rank and shape -> attributes -> overlap.
Status Validate(const MhcSinkhornArgs& args);
Status Validate(const MhcSinkhornBackwardArgs& args);

// The definition, in double precision, on FP64 tensors; arguments have been validated.
void MhcSinkhornReference(const MhcSinkhornArgs& args);
void MhcSinkhornBackwardReference(const MhcSinkhornBackwardArgs& args);

inline bool Clamps(const MhcOptions& o) { return o.clamp_low != 0 || o.clamp_high != 0; }

// Reads a validated matrix tensor [*, n, n] or [*, n*n].
struct SinkhornShape {
  SinkhornShape(const TensorView& matrices, std::int64_t given_n);
  int leading;
  std::int64_t tokens;
  std::int64_t n;
};

// A cache [2*num_iters, tokens..., inner...]: the rows of one step.
struct CacheRows {
  CacheRows() = default;
  CacheRows(const TensorView& view, int inner);
  bool defined() const { return rows.defined(); }
  template <class T>
  T* Token(std::int64_t step, std::int64_t token) const {
    return reinterpret_cast<T*>(rows.Token(token)) + step * step_stride;
  }
  TokenRows rows;
  std::int64_t step_stride = 0;  // elements
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_MHC_SINKHORN_MHC_SINKHORN_H_
