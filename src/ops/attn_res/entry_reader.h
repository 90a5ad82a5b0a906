// What the table entries of the attention residual operators share.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_ENTRY_READER_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_ENTRY_READER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "anabranch/tensor.h"

namespace anabranch {

// Tensors in the order of their specs.
class EntryReader {
 public:
  explicit EntryReader(std::span<const TensorView> tensors) : tensors_(tensors) {}
  TensorView Next() { return tensors_[next_++]; }
  std::vector<TensorView> Next(std::int64_t count) {
    std::vector<TensorView> list;
    for (std::int64_t i = 0; i < count; ++i) list.push_back(Next());
    return list;
  }

 private:
  std::span<const TensorView> tensors_;
  std::size_t next_ = 0;
};

// A scale and an eps other than the defaults, so that a forgotten one is seen.
inline constexpr double kEntryScale = 0.75;
inline constexpr double kEntryEps = 1e-3;

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_ENTRY_READER_H_
