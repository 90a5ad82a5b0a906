#include "src/ops/attn_res/params.h"

#include <algorithm>
#include <cstring>

#include "src/core/half.h"
#include "src/core/parallel.h"
#include "src/kernels/attn_residual.h"

namespace anabranch {

ParamRow::ParamRow(const TensorView& view, std::int64_t row) : dtype_(view.dtype) {
  if (!view.defined()) return;
  data_ = static_cast<std::byte*>(view.data);
  stride_ = view.strides[view.rank() - 1];
  if (view.rank() == 2) {
    data_ += row * view.strides[0] * static_cast<std::int64_t>(DTypeSize(dtype_));
  }
}

float ParamRow::Load(std::int64_t k) const {
  if (data_ == nullptr) return 1.0f;
  if (dtype_ == DType::kFloat32) {
    return reinterpret_cast<const float*>(data_)[k * stride_];
  }
  const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(data_)[k * stride_];
  return dtype_ == DType::kBFloat16 ? BFloat16ToFloat(bits) : Float16ToFloat(bits);
}

void ParamRow::Store(std::int64_t k, float value) const {
  if (dtype_ == DType::kFloat32) {
    reinterpret_cast<float*>(data_)[k * stride_] = value;
    return;
  }
  reinterpret_cast<std::uint16_t*>(data_)[k * stride_] =
      dtype_ == DType::kBFloat16 ? FloatToBFloat16(value) : FloatToFloat16(value);
}

void PackQuery(const ParamRow& w, const ParamRow& gamma, float scale, std::int64_t d, DType rows,
               float* packed) {
  std::fill(packed + d / 32 * 32, packed + PackedLength(d), 0.0f);
  for (std::int64_t k = 0; k < d; ++k) {
    const float scaled = scale * w.Load(k);
    packed[PackedIndex(rows, k)] = gamma.defined() ? scaled * gamma.Load(k) : scaled;
  }
}

TokenChunks::TokenChunks(std::int64_t token_count, std::int64_t most)
    : tokens(token_count),
      size(std::max<std::int64_t>(16, CeilDiv(token_count, most))),
      count(CeilDiv(token_count, size)) {}

void SumChunks(float* vectors, std::int64_t count, std::int64_t stride, std::int64_t length,
               const Context& context, int threads) {
  constexpr std::int64_t kColumns = 1024;
  ForEachItem(context, threads, CeilDiv(length, kColumns), [&](int /*slot*/, std::int64_t item) {
    const std::int64_t begin = item * kColumns;
    const std::int64_t columns = std::min(kColumns, length - begin);
    for (std::int64_t step = 1; step < count; step *= 2) {
      for (std::int64_t i = 0; i + step < count; i += 2 * step) {
        float* to = vectors + i * stride + begin;
        const float* from = vectors + (i + step) * stride + begin;
        for (std::int64_t k = 0; k < columns; ++k) to[k] += from[k];
      }
    }
  });
}

}  // namespace anabranch
