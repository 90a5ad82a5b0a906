// Double-precision tensors as the references of the attention residual operators read them.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_REFERENCE_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_REFERENCE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "anabranch/attn_res.h"
#include "anabranch/tensor.h"
#include "src/core/tokens.h"

namespace anabranch::attn_reference {

// A parameter [D] or [1, D], or ones.
// Of a tensor [S, D] row `row`.
struct Vector {
  explicit Vector(const TensorView& view, std::int64_t row = 0)
      : data(static_cast<double*>(view.data)),
        stride(view.defined() ? view.strides[view.rank() - 1] : 0) {
    if (view.rank() == 2) data += row * view.strides[0];
  }
  bool defined() const { return data != nullptr; }
  double& operator[](std::int64_t k) const { return data[k * stride]; }
  double Or1(std::int64_t k) const { return data != nullptr ? data[k * stride] : 1; }
  double* data;
  std::int64_t stride;
};

// A tensor [*, L] or [*, L, 1].
struct Cache {
  Cache(const TensorView& view, int leading)
      : rows(view, view.defined() ? view.rank() - leading : 0),
        stride(view.defined() ? view.strides[leading] : 0) {}
  double& At(std::int64_t t, std::int64_t l) const {
    return reinterpret_cast<double*>(rows.Token(t))[l * stride];
  }
  TokenRows rows;
  std::int64_t stride;
};

// The rows of all sources, without memory of its own.
struct SourceRows {
  const TokenRows& operator[](std::size_t l) const { return rows[l]; }
  std::size_t size() const { return count; }
  const TokenRows* begin() const { return rows.data(); }
  const TokenRows* end() const { return rows.data() + count; }

  std::array<TokenRows, kMaxBlocks + 1> rows;
  std::size_t count = 0;
};

inline SourceRows List(const std::vector<TensorView>& blocks, const TensorView& partial) {
  SourceRows list;
  for (const TensorView& block : blocks) list.rows[list.count++] = TokenRows(block, 1);
  if (partial.defined()) list.rows[list.count++] = TokenRows(partial, 1);
  return list;
}

}  // namespace anabranch::attn_reference

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_REFERENCE_H_
