// Walks over the tokens of a tile so that while one token, in cache, is passed a second time, the
// next one is read from memory, and what comes after it is fetched ahead: the memory is busy at an
// even pace, and never waited for.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_ROW_PIPE_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_ROW_PIPE_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "src/kernels/attn_residual.h"
#include "src/ops/attn_res/sources.h"

namespace anabranch {

class RowPipe {
 public:
  // Rows that are dense along D. The first step reads token `begin` and has none in cache.
  RowPipe(const Sources& sources, std::int64_t begin, std::int64_t end)
      : sources_(sources), end_(end), reading_(begin) {
    Fill(reading_, read_);
    Fill(reading_ + 1, next_);
  }

  void Advance() {
    ++reading_;
    std::swap(cached_, read_);
    std::swap(read_, next_);
    Fill(reading_ + 1, next_);
  }

  // Rows from element k of the token that is read, of the one before it and of the one after it
  // (again those that are read if it is the last one). Valid until the next call of the same
  // function or of Advance().
  const void* const* Read(std::int64_t k) { return Shift(read_, k, read_piece_); }
  const void* const* Cached(std::int64_t k) { return Shift(cached_, k, cached_piece_); }
  const void* const* Next(std::int64_t k) {
    return Shift(reading_ + 1 < end_ ? next_ : read_, k, next_piece_);
  }

 private:
  void Fill(std::int64_t t, const void** rows) const {
    if (t < end_) sources_.Rows(t, rows);
  }

  const void* const* Shift(const void* const* rows, std::int64_t k, const void** piece) const {
    if (k == 0) return rows;
    const std::int64_t bytes = k * static_cast<std::int64_t>(sources_.element());
    for (int l = 0; l < sources_.count(); ++l) {
      piece[l] = static_cast<const std::byte*>(rows[l]) + bytes;
    }
    return piece;
  }

  const Sources& sources_;
  std::int64_t end_;
  std::int64_t reading_;
  const void* rows_[3][kMaxSources] = {};
  const void** cached_ = rows_[0];
  const void** read_ = rows_[1];
  const void** next_ = rows_[2];
  const void* read_piece_[kMaxSources];
  const void* cached_piece_[kMaxSources];
  const void* next_piece_[kMaxSources];
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_ROW_PIPE_H_
