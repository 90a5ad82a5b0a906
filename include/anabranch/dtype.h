// Element types: a tag for tensors, and 2-byte storage types for bfloat16 and IEEE binary16.
#ifndef ANABRANCH_DTYPE_H_
#define ANABRANCH_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/export.h"

namespace anabranch {

// kUndefined marks an absent tensor. kFloat64 selects the double-precision reference path: it is
// accepted only where every tensor of a call is kFloat64.
enum class DType : std::uint8_t { kUndefined = 0, kFloat32, kBFloat16, kFloat16, kFloat64 };

// Bytes of one element; 0 for kUndefined.
ANABRANCH_EXPORT std::size_t DTypeSize(DType dtype);

// "float32", "bfloat16", "float16", "float64", "undefined".
ANABRANCH_EXPORT const char* DTypeName(DType dtype);

// bfloat16: 1 sign, 8 exponent, 7 mantissa bits. Storage only.
struct BFloat16 {
  std::uint16_t bits;
};

// IEEE 754 binary16: 1 sign, 5 exponent, 10 mantissa bits. Storage only.
struct Float16 {
  std::uint16_t bits;
};

// Conversions round to nearest, ties to even; subnormals are kept, overflow gives infinity, a NaN
// stays a (quiet) NaN with its sign and upper payload bits.
ANABRANCH_EXPORT float ToFloat(BFloat16 value);
ANABRANCH_EXPORT float ToFloat(Float16 value);
ANABRANCH_EXPORT BFloat16 ToBFloat16(float value);
ANABRANCH_EXPORT Float16 ToFloat16(float value);

}  // namespace anabranch

#endif  // ANABRANCH_DTYPE_H_
