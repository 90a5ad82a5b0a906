// Inside of mhc_pre_sinkhorn: see include/anabranch/mhc_pre_sinkhorn.h.
#ifndef ANABRANCH_SRC_OPS_MHC_PRE_SINKHORN_MHC_PRE_SINKHORN_H_
#define ANABRANCH_SRC_OPS_MHC_PRE_SINKHORN_MHC_PRE_SINKHORN_H_

#include "anabranch/mhc_pre_sinkhorn.h"
#include "src/core/spec.h"

namespace anabranch {

// null -> dtype -> rank and shape -> attributes -> overlap.
Status Validate(const MhcPreSinkhornArgs& args, Face face);
Status Validate(const MhcPreSinkhornBackwardArgs& args, Face face);

// The definition, in double precision, on FP64 tensors; arguments have been validated. Scratch:
// so many doubles.
void MhcPreSinkhornReference(const MhcPreSinkhornArgs& args, double* scratch);
std::int64_t MhcPreSinkhornScratch(const MhcPreSinkhornArgs& args);
void MhcPreSinkhornBackwardReference(const MhcPreSinkhornBackwardArgs& args, double* scratch);
std::int64_t MhcPreSinkhornBackwardScratch(const MhcPreSinkhornBackwardArgs& args);

// Iterations of a call: those of its caches, or options.num_iters.
std::int64_t IterationsOf(const MhcPreSinkhornBackwardArgs& args);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_MHC_PRE_SINKHORN_MHC_PRE_SINKHORN_H_
