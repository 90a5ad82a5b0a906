// The list of source tensors of an attention residual: their rows by token, and how rows that are
// not dense along D reach the kernels piece by piece.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_SOURCES_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_SOURCES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "anabranch/tensor.h"
#include "src/core/tokens.h"

namespace anabranch {

// Elements of a piece: a multiple of the kernels' unit of 32.
inline constexpr std::int64_t kAttnPiece = 64;

// Tensors [*, D] of one shape and dtype.
class Sources {
 public:
  Sources() = default;
  // `partial` may be absent.
  Sources(const std::vector<TensorView>& blocks, const TensorView& partial);

  int count() const { return static_cast<int>(rows_.size()); }
  bool dense() const { return dense_; }
  std::size_t element() const { return rows_.empty() ? 0 : rows_[0].element; }  // bytes
  // Scratch bytes of one piece of all rows.
  std::size_t piece_bytes() const;

  // rows[l] = the address of source l's row of token t.
  void Rows(std::int64_t t, const void** rows) const;
  void Rows(std::int64_t t, void** rows) const;

  // rows[l] = `count` adjacent elements from `begin`: in place where the row is dense, else copied
  // to `scratch`. Of all sources, or of the `number` ones from `first`, rows[0] for `first`.
  void Gather(std::int64_t t, std::int64_t begin, std::int64_t count, std::byte* scratch,
              const void** rows) const {
    Gather(t, begin, count, scratch, rows, 0, this->count());
  }
  void Gather(std::int64_t t, std::int64_t begin, std::int64_t count, std::byte* scratch,
              const void** rows, int first, int number) const;
  // The way back for outputs: where a piece is to be written, and afterwards to its place.
  void Open(std::int64_t t, std::int64_t begin, std::byte* scratch, void** rows) const;
  void Scatter(std::int64_t t, std::int64_t begin, std::int64_t count, void* const* rows) const;

 private:
  std::byte* Address(int l, std::int64_t t, std::int64_t begin) const;

  std::vector<TokenRows> rows_;
  bool dense_ = true;
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_SOURCES_H_
