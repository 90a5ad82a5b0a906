#include "anabranch/tensor.h"

#include <algorithm>

namespace anabranch {

bool operator==(const Dims& a, const Dims& b) {
  return a.rank == b.rank && std::equal(a.values, a.values + std::min(a.rank, kMaxRank), b.values);
}

std::string ToString(const Dims& dims) {
  std::string text = "(";
  for (int i = 0; i < std::min(dims.rank, kMaxRank); ++i) {
    if (i > 0) text += ", ";
    text += dims[i] == kUnknown ? "?" : std::to_string(dims[i]);
  }
  if (dims.rank > kMaxRank) text += ", ...";
  if (dims.rank == 1) text += ",";
  return text + ")";
}

Dims ContiguousStrides(const Dims& sizes) {
  Dims strides;
  strides.rank = sizes.rank;
  // Unsigned: sizes whose product overflows are refused later, and must not trap here.
  std::uint64_t stride = 1;
  for (int i = std::min(sizes.rank, kMaxRank) - 1; i >= 0; --i) {
    strides[i] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(std::max<std::int64_t>(sizes[i], 1));
  }
  return strides;
}

std::int64_t NumElements(const Dims& sizes) {
  std::int64_t product = 1;
  bool overflow = false;
  for (int i = 0; i < std::min(sizes.rank, kMaxRank); ++i) {
    if (sizes[i] < 0) return kUnknown;
    if (sizes[i] == 0) return 0;
    overflow |= __builtin_mul_overflow(product, sizes[i], &product);
  }
  return overflow ? kUnknown : product;
}

}  // namespace anabranch
