// TensorView: a borrowed, strided, n-dimensional array. The only tensor type of the C++ API.
#ifndef ANABRANCH_TENSOR_H_
#define ANABRANCH_TENSOR_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "anabranch/dtype.h"

namespace anabranch {

inline constexpr int kMaxRank = 8;

// A size of kUnknown (-1) is allowed in shape inference only.
inline constexpr std::int64_t kUnknown = -1;

// Sizes or strides: up to kMaxRank 64-bit numbers, by value. A list of more numbers than that is
// kept as rank kMaxRank + 1, which every operator refuses.
struct Dims {
  int rank = 0;
  std::int64_t values[kMaxRank] = {};

  Dims() = default;
  Dims(std::initializer_list<std::int64_t> list) {
    for (std::int64_t v : list) push_back(v);
  }
  void push_back(std::int64_t v) {
    if (rank < kMaxRank) values[rank] = v;
    if (rank <= kMaxRank) ++rank;
  }
  std::int64_t& operator[](int i) { return values[i]; }
  std::int64_t operator[](int i) const { return values[i]; }
  const std::int64_t* begin() const { return values; }
  const std::int64_t* end() const { return values + rank; }
};

ANABRANCH_EXPORT bool operator==(const Dims& a, const Dims& b);
inline bool operator!=(const Dims& a, const Dims& b) { return !(a == b); }

// "(2, 8, 4)"; an unknown size prints as "?".
ANABRANCH_EXPORT std::string ToString(const Dims& dims);

// Row-major strides, in elements, of a dense array of these sizes.
ANABRANCH_EXPORT Dims ContiguousStrides(const Dims& sizes);

// Product of the sizes; kUnknown if any is unknown or the product does not fit 63 bits.
ANABRANCH_EXPORT std::int64_t NumElements(const Dims& sizes);

// Element (i0, i1, ...) lies at data + (i0*strides[0] + i1*strides[1] + ...) elements. Any strides
// are legal for inputs (0 for an expanded dimension, transposed, negative); an output must not
// overlap itself. The address needs the alignment of one element, no more. A default-constructed
// view is an absent tensor.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kUndefined;
  Dims sizes;
  Dims strides;

  TensorView() = default;
  // Dense, row-major.
  TensorView(void* address, DType type, const Dims& shape)
      : data(address), dtype(type), sizes(shape), strides(ContiguousStrides(shape)) {}
  TensorView(void* address, DType type, const Dims& shape, const Dims& stride)
      : data(address), dtype(type), sizes(shape), strides(stride) {}

  bool defined() const { return dtype != DType::kUndefined; }
  int rank() const { return sizes.rank; }
  std::int64_t numel() const { return NumElements(sizes); }
};

}  // namespace anabranch

#endif  // ANABRANCH_TENSOR_H_
