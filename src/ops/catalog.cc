#include "src/ops/catalog.h"

#include <cstring>

#include "src/ops/entries.h"

namespace anabranch {

std::span<const OperatorEntry> Operators() {
  static const std::vector<OperatorEntry> operators = {
      MhcPreEntry(),         MhcPreBackwardEntry(),
      MhcSinkhornEntry(),    MhcSinkhornBackwardEntry(),
      MhcPermutationEntry(), MhcPermutationBackwardEntry(),
      MhcPreSinkhornEntry(), MhcPreSinkhornBackwardEntry(),
      MhcPostEntry(),        MhcPostBackwardEntry(),
      MhcHeadEntry(),        MhcHeadBackwardEntry(),
      BlockAttnResEntry(),   BlockAttnResBackwardEntry(),
      AttnResPrepareEntry(), AttnResPrepareBackwardEntry(),
      AttnResMergeEntry(),   AttnResMergeBackwardEntry(),
  };
  return operators;
}

const OperatorEntry* FindOperator(const std::string& name) {
  for (const OperatorEntry& entry : Operators()) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

const OperatorEntry* ForwardOf(const OperatorEntry& entry) {
  for (const OperatorEntry& candidate : Operators()) {
    const bool same = std::strcmp(candidate.op, entry.op) == 0;
    if (same && std::strcmp(candidate.pass, "forward") == 0) return &candidate;
  }
  return nullptr;
}

}  // namespace anabranch
