#include "src/core/tokens.h"

#include <cstring>

namespace anabranch {
namespace {

template <class T>
void CopyElements(void* to, std::int64_t to_stride, const void* from, std::int64_t from_stride,
                  std::int64_t count) {
  auto* out = static_cast<T*>(to);
  const auto* in = static_cast<const T*>(from);
  for (std::int64_t i = 0; i < count; ++i) out[i * to_stride] = in[i * from_stride];
}

// The step over `count` elements. The stride of a dimension of one element, and all of a tensor
// without elements, may be any number: their products wrap around and are not used. All others were
// checked.
std::int64_t Times(std::int64_t count, std::int64_t stride) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(count) *
                                   static_cast<std::uint64_t>(stride));
}

}  // namespace

TokenIndex::TokenIndex(const Dims& sizes, const Dims& strides, int leading) {
  for (int i = 0; i < leading; ++i) {
    if (sizes[i] == 1) continue;
    const bool merges = rank_ > 0 && strides_[rank_ - 1] == Times(sizes[i], strides[i]);
    if (merges) {
      sizes_[rank_ - 1] *= sizes[i];
      strides_[rank_ - 1] = strides[i];
    } else {
      sizes_[rank_] = sizes[i];
      strides_[rank_] = strides[i];
      ++rank_;
    }
  }
}

std::int64_t TokenIndex::SlowOffset(std::int64_t token) const {
  std::int64_t offset = 0;
  for (int i = rank_ - 1; i > 0; --i) {
    offset += token % sizes_[i] * strides_[i];
    token /= sizes_[i];
  }
  return offset + token * strides_[0];
}

TokenRows::TokenRows(const TensorView& view, int inner) {
  if (!view.defined()) return;
  base = static_cast<std::byte*>(view.data);
  element = DTypeSize(view.dtype);
  const int leading = view.rank() - inner;
  index = TokenIndex(view.sizes, view.strides, leading);
  if (inner >= 1) stride1 = view.strides[view.rank() - 1];
  if (inner >= 2) stride0 = view.strides[view.rank() - 2];
}

TokenRows TokenRows::Matrix(const TensorView& view, int leading, std::int64_t n) {
  if (!view.defined()) return TokenRows();
  TokenRows rows(view, view.rank() - leading);
  if (view.rank() == leading + 1) rows.stride0 = Times(n, rows.stride1);
  return rows;
}

StepRows::StepRows(const TensorView& view, int inner) {
  if (!view.defined()) return;
  TensorView step = view;
  step.sizes = Dims();
  step.strides = Dims();
  for (int i = 1; i < view.rank(); ++i) {
    step.sizes.push_back(view.sizes[i]);
    step.strides.push_back(view.strides[i]);
  }
  rows = TokenRows(step, inner);
  step_stride = view.strides[0];
}

std::int64_t CountTokens(const Dims& sizes, int leading) {
  Dims tokens;
  for (int i = 0; i < leading; ++i) tokens.push_back(sizes[i]);
  return NumElements(tokens);
}

void CopyStrided(void* to, std::int64_t to_stride, const void* from, std::int64_t from_stride,
                 std::int64_t count, std::size_t element) {
  if (count <= 0) return;
  if (to_stride == 1 && from_stride == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * element);
  } else if (element == 2) {
    CopyElements<std::uint16_t>(to, to_stride, from, from_stride, count);
  } else if (element == 4) {
    CopyElements<std::uint32_t>(to, to_stride, from, from_stride, count);
  } else {
    CopyElements<std::uint64_t>(to, to_stride, from, from_stride, count);
  }
}

}  // namespace anabranch
