// Walks over the tokens of a tile so that while one token, in cache, is passed a second time, the
// next one is read from memory, piece by piece in turn, and what comes after it is fetched ahead:
// the memory is busy at an even pace, and never waited for.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_ROW_PIPE_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_ROW_PIPE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "src/kernels/attn_residual.h"
#include "src/ops/attn_res/sources.h"

namespace anabranch {

// Elements of a piece of all rows.
inline constexpr std::int64_t kPipePiece = 512;
// How far ahead rows are fetched, in rows of such a piece.
inline constexpr int kPipeAhead = 12;

class RowPipe {
 public:
  // Rows that are dense along D. The first step reads token `begin` and has none in cache.
  RowPipe(const Sources& sources, std::int64_t d, std::int64_t begin, std::int64_t end)
      : sources_(sources), d_(d), end_(end), reading_(begin) {
    Fill(reading_, read_);
    Fill(reading_ + 1, next_);
  }

  void Advance() {
    ++reading_;
    std::swap(cached_, read_);
    std::swap(read_, next_);
    Fill(reading_ + 1, next_);
  }

  // Rows from element k of the token that is read, and of the one before it. Valid until the next
  // call of the same function.
  const void* const* Read(std::int64_t k) { return Shift(read_, k, read_piece_); }
  const void* const* Cached(std::int64_t k) { return Shift(cached_, k, cached_piece_); }

  // What to fetch while a piece at element k is read: for every row what is read kPipeAhead rows
  // later, counting the rows of a piece, then those of the next one, then the next token's. Behind
  // the last token: again what is read.
  const void* const* Ahead(std::int64_t k) {
    const int count = sources_.count();
    const std::int64_t pieces = (d_ + kPipePiece - 1) / kPipePiece;
    for (int l = 0; l < count; ++l) {
      std::int64_t piece = k / kPipePiece + (l + kPipeAhead) / count;
      const int row = (l + kPipeAhead) % count;
      const void* const* rows = read_;
      if (piece >= pieces) {
        rows = reading_ + 1 < end_ ? next_ : read_;
        piece = std::min(piece - pieces, pieces - 1);
      }
      ahead_piece_[l] = static_cast<const std::byte*>(rows[row]) +
                        piece * kPipePiece * static_cast<std::int64_t>(sources_.element());
    }
    return ahead_piece_;
  }

 private:
  void Fill(std::int64_t t, const void** rows) const {
    if (t < end_) sources_.Rows(t, rows);
  }

  const void* const* Shift(const void* const* rows, std::int64_t k, const void** piece) const {
    const std::int64_t bytes = k * static_cast<std::int64_t>(sources_.element());
    for (int l = 0; l < sources_.count(); ++l) {
      piece[l] = static_cast<const std::byte*>(rows[l]) + bytes;
    }
    return piece;
  }

  const Sources& sources_;
  std::int64_t d_;
  std::int64_t end_;
  std::int64_t reading_;
  const void* rows_[3][kMaxSources] = {};
  const void** cached_ = rows_[0];
  const void** read_ = rows_[1];
  const void** next_ = rows_[2];
  const void* read_piece_[kMaxSources];
  const void* cached_piece_[kMaxSources];
  const void* ahead_piece_[kMaxSources];
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_ROW_PIPE_H_
