#include "src/ops/catalog.h"

#include <algorithm>
#include <cstring>
#include <string_view>

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

namespace {

std::string_view VariantName(const OperatorEntry& entry, const Case& c) {
  return entry.variants[static_cast<std::size_t>(c.variant)];
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

bool InC(const OperatorEntry& entry, const Case& c) {
  const std::string_view variant = VariantName(entry, c);
  if (Contains(variant, "clamp")) return false;   // no call has one
  if (variant == "logits [*,n*n]") return false;  // would need n, which no argument gives
  const std::vector<TensorSpec> specs = entry.tensors(c);
  const auto has = [&](std::string_view name) {
    return std::any_of(specs.begin(), specs.end(),
                       [&](const TensorSpec& spec) { return spec.name == name; });
  };
  const std::string_view name = entry.name;
  // That call has neither logits nor eps: it starts from the caches, of up to 100 iterations.
  if (name == "mhc_sinkhorn_backward") return has("sum_out") && c.num_iters <= 100;
  // The iterates go with the other caches, and the backward starts from them.
  if (name == "mhc_pre_sinkhorn_backward") return has("sum_out");
  if (name == "mhc_pre_sinkhorn") return has("sum_out") == has("inv_rms");
  return true;
}

bool InPyTorch(const OperatorEntry& entry, const Case& c) {
  const std::string_view variant = VariantName(entry, c);
  if (Contains(variant, "clamp") && Contains(entry.name, "mhc_pre_sinkhorn")) return false;
  return variant != "logits [*,n*n]" && variant != "no h_res, grad_h_res wanted" &&
         variant != "no blocks";  // the tokens of nothing
}

}  // namespace anabranch
