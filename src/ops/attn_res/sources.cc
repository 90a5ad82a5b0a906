#include "src/ops/attn_res/sources.h"

namespace anabranch {

Sources::Sources(const std::vector<TensorView>& blocks, const TensorView& partial) {
  rows_.reserve(blocks.size() + 1);
  for (const TensorView& block : blocks) rows_.emplace_back(block, 1);
  if (partial.defined()) rows_.emplace_back(partial, 1);
  for (const TokenRows& rows : rows_) dense_ = dense_ && rows.stride1 == 1;
}

std::size_t Sources::piece_bytes() const {
  if (rows_.empty()) return 0;
  return rows_.size() * static_cast<std::size_t>(kAttnPiece) * rows_[0].element;
}

std::byte* Sources::Address(int l, std::int64_t t, std::int64_t begin) const {
  const TokenRows& rows = rows_[static_cast<std::size_t>(l)];
  return rows.Token(t) + begin * rows.stride1 * static_cast<std::int64_t>(rows.element);
}

void Sources::Rows(std::int64_t t, const void** rows) const {
  for (int l = 0; l < count(); ++l) rows[l] = rows_[static_cast<std::size_t>(l)].Token(t);
}

void Sources::Rows(std::int64_t t, void** rows) const {
  for (int l = 0; l < count(); ++l) rows[l] = rows_[static_cast<std::size_t>(l)].Token(t);
}

void Sources::Gather(std::int64_t t, std::int64_t begin, std::int64_t count_elements,
                     std::byte* scratch, const void** rows, int first, int number) const {
  for (int i = 0; i < number; ++i) {
    const int l = first + i;
    const TokenRows& from = rows_[static_cast<std::size_t>(l)];
    std::byte* address = Address(l, t, begin);
    if (from.stride1 != 1) {
      std::byte* to = scratch + i * kAttnPiece * static_cast<std::int64_t>(from.element);
      CopyStrided(to, 1, address, from.stride1, count_elements, from.element);
      address = to;
    }
    rows[i] = address;
  }
}

void Sources::Open(std::int64_t t, std::int64_t begin, std::byte* scratch, void** rows) const {
  for (int l = 0; l < count(); ++l) {
    const TokenRows& to = rows_[static_cast<std::size_t>(l)];
    rows[l] = to.stride1 == 1 ? Address(l, t, begin)
                              : scratch + l * kAttnPiece * static_cast<std::int64_t>(to.element);
  }
}

void Sources::Scatter(std::int64_t t, std::int64_t begin, std::int64_t count_elements,
                      void* const* rows) const {
  for (int l = 0; l < count(); ++l) {
    const TokenRows& to = rows_[static_cast<std::size_t>(l)];
    if (to.stride1 == 1) continue;
    CopyStrided(Address(l, t, begin), to.stride1, rows[l], 1, count_elements, to.element);
  }
}

}  // namespace anabranch
