// Definitions in double precision that other operators' definitions start from.
#ifndef ANABRANCH_SRC_OPS_MHC_REFERENCES_H_
#define ANABRANCH_SRC_OPS_MHC_REFERENCES_H_

#include "anabranch/mhc_pre.h"

namespace anabranch {

void MhcPreReference(const MhcPreArgs& args);
void MhcPreBackwardReference(const MhcPreBackwardArgs& args);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_MHC_REFERENCES_H_
