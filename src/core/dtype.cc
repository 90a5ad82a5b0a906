#include "anabranch/dtype.h"

#include "src/core/half.h"

namespace anabranch {

std::size_t DTypeSize(DType dtype) {
  switch (dtype) {
    case DType::kUndefined:
      return 0;
    case DType::kFloat32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kFloat64:
      return 8;
  }
  return 0;
}

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kUndefined:
      return "undefined";
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
    case DType::kFloat64:
      return "float64";
  }
  return "invalid";
}

float ToFloat(BFloat16 value) { return BFloat16ToFloat(value.bits); }
float ToFloat(Float16 value) { return Float16ToFloat(value.bits); }
BFloat16 ToBFloat16(float value) { return BFloat16{FloatToBFloat16(value)}; }
Float16 ToFloat16(float value) { return Float16{FloatToFloat16(value)}; }

}  // namespace anabranch
