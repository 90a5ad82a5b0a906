// Addresses of one token's part of a strided tensor.
#ifndef ANABRANCH_SRC_CORE_TOKENS_H_
#define ANABRANCH_SRC_CORE_TOKENS_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/tensor.h"

namespace anabranch {

// The leading dimensions of a tensor read as one token index, row-major. Dimensions that lie
// densely behind each other are merged, so that for most tensors a token's address is one multiply.
class TokenIndex {
 public:
  TokenIndex() = default;
  TokenIndex(const Dims& sizes, const Dims& strides, int leading);

  std::int64_t Offset(std::int64_t token) const {
    if (rank_ <= 1) return token * strides_[0];
    return SlowOffset(token);
  }

 private:
  std::int64_t SlowOffset(std::int64_t token) const;

  int rank_ = 0;
  std::int64_t sizes_[kMaxRank] = {};
  std::int64_t strides_[kMaxRank] = {};
};

// A tensor [*, inner...] with its tokens indexed; `inner` trailing dimensions (0, 1 or 2) are kept.
// An absent tensor gives a null base.
struct TokenRows {
  std::byte* base = nullptr;
  std::size_t element = 0;  // bytes
  TokenIndex index;
  std::int64_t stride0 = 0;  // elements; of the last but one inner dimension (lanes), or 0
  std::int64_t stride1 = 0;  // elements; of the last inner dimension

  TokenRows() = default;
  TokenRows(const TensorView& view, int inner);

  // n x n matrices given as [*, n, n] or, flattened, as [*, n*n].
  static TokenRows Matrix(const TensorView& view, int leading, std::int64_t n);

  bool defined() const { return base != nullptr; }
  std::byte* Token(std::int64_t token) const {
    return base + index.Offset(token) * static_cast<std::int64_t>(element);
  }
  template <class T>
  T& At(std::int64_t token, std::int64_t i, std::int64_t j) const {
    return reinterpret_cast<T*>(Token(token))[i * stride0 + j * stride1];
  }
  template <class T>
  T& At(std::int64_t token, std::int64_t j) const {
    return reinterpret_cast<T*>(Token(token))[j * stride1];
  }
  template <class T>
  T& At(std::int64_t token) const {
    return reinterpret_cast<T*>(Token(token))[0];
  }
};

// A cache [steps, *, inner...]: the rows of one step, the steps one stride apart. An absent tensor
// gives a null base.
struct StepRows {
  StepRows() = default;
  StepRows(const TensorView& view, int inner);

  bool defined() const { return rows.defined(); }
  template <class T>
  T& At(std::int64_t step, std::int64_t token, std::int64_t i, std::int64_t j) const {
    return (&rows.At<T>(token, i, j))[step * step_stride];
  }
  template <class T>
  T& At(std::int64_t step, std::int64_t token, std::int64_t j) const {
    return (&rows.At<T>(token, j))[step * step_stride];
  }

  TokenRows rows;
  std::int64_t step_stride = 0;  // elements
};

// Number of tokens: the product of the first `leading` sizes.
std::int64_t CountTokens(const Dims& sizes, int leading);

// Copies `count` elements of `element` (2, 4 or 8) bytes between strided rows; strides in elements.
void CopyStrided(void* to, std::int64_t to_stride, const void* from, std::int64_t from_stride,
                 std::int64_t count, std::size_t element);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_CORE_TOKENS_H_
