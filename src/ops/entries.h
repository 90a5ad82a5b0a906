// One line a pass: what each operator's entry.cc defines for the table in catalog.cc.
#ifndef ANABRANCH_SRC_OPS_ENTRIES_H_
#define ANABRANCH_SRC_OPS_ENTRIES_H_

#include "src/ops/catalog.h"

namespace anabranch {

OperatorEntry MhcPostEntry();
OperatorEntry MhcPostBackwardEntry();
OperatorEntry MhcPreEntry();
OperatorEntry MhcPreBackwardEntry();
OperatorEntry MhcPreSinkhornEntry();
OperatorEntry MhcPreSinkhornBackwardEntry();
OperatorEntry MhcHeadEntry();
OperatorEntry MhcHeadBackwardEntry();
OperatorEntry BlockAttnResEntry();
OperatorEntry BlockAttnResBackwardEntry();
OperatorEntry AttnResPrepareEntry();
OperatorEntry AttnResPrepareBackwardEntry();
OperatorEntry AttnResMergeEntry();
OperatorEntry AttnResMergeBackwardEntry();
OperatorEntry MhcSinkhornEntry();
OperatorEntry MhcSinkhornBackwardEntry();
OperatorEntry MhcPermutationEntry();
OperatorEntry MhcPermutationBackwardEntry();

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_ENTRIES_H_
