#include "src/ops/attn_res/params.h"

#include <algorithm>
#include <cstring>

#include "src/core/half.h"
#include "src/core/parallel.h"
#include "src/kernels/attn_residual.h"

namespace anabranch {
namespace {

constexpr std::int64_t kBlock = 256;  // a multiple of the packed units

void Pack(const float* from, std::int64_t count, DType rows, float* packed) {
  if (rows != DType::kBFloat16) {
    std::copy_n(from, count, packed);
    return;
  }
  std::int64_t k = 0;
  for (; k + 32 <= count; k += 32) {
    for (std::int64_t i = 0; i < 16; ++i) packed[k + i] = from[k + 2 * i];
    for (std::int64_t i = 0; i < 16; ++i) packed[k + 16 + i] = from[k + 2 * i + 1];
  }
  for (; k < count; ++k) packed[PackedIndex(rows, k)] = from[k];
}

void Unpack(const float* packed, std::int64_t count, DType rows, float* to) {
  if (rows != DType::kBFloat16) {
    std::copy_n(packed, count, to);
    return;
  }
  std::int64_t k = 0;
  for (; k + 32 <= count; k += 32) {
    for (std::int64_t i = 0; i < 16; ++i) to[k + 2 * i] = packed[k + i];
    for (std::int64_t i = 0; i < 16; ++i) to[k + 2 * i + 1] = packed[k + 16 + i];
  }
  for (; k < count; ++k) to[k] = packed[PackedIndex(rows, k)];
}

}  // namespace

ParamRow::ParamRow(const TensorView& view, std::int64_t row) : dtype_(view.dtype) {
  if (!view.defined()) return;
  data_ = static_cast<std::byte*>(view.data);
  stride_ = view.strides[view.rank() - 1];
  if (view.rank() == 2) {
    data_ += row * view.strides[0] * static_cast<std::int64_t>(DTypeSize(dtype_));
  }
}

void ParamRow::Load(std::int64_t begin, std::int64_t count, float* to) const {
  if (data_ == nullptr) {
    std::fill_n(to, count, 1.0f);
  } else if (dtype_ == DType::kFloat32) {
    const auto* from = reinterpret_cast<const float*>(data_) + begin * stride_;
    if (stride_ == 1) {
      std::copy_n(from, count, to);
      return;
    }
    for (std::int64_t k = 0; k < count; ++k) to[k] = from[k * stride_];
  } else {
    const auto* from = reinterpret_cast<const std::uint16_t*>(data_) + begin * stride_;
    const auto widen = dtype_ == DType::kBFloat16 ? &BFloat16ToFloat : &Float16ToFloat;
    for (std::int64_t k = 0; k < count; ++k) to[k] = widen(from[k * stride_]);
  }
}

void ParamRow::Store(std::int64_t begin, std::int64_t count, const float* from) const {
  if (dtype_ == DType::kFloat32) {
    auto* to = reinterpret_cast<float*>(data_) + begin * stride_;
    for (std::int64_t k = 0; k < count; ++k) to[k * stride_] = from[k];
  } else {
    auto* to = reinterpret_cast<std::uint16_t*>(data_) + begin * stride_;
    const auto narrow = dtype_ == DType::kBFloat16 ? &FloatToBFloat16 : &FloatToFloat16;
    for (std::int64_t k = 0; k < count; ++k) to[k * stride_] = narrow(from[k]);
  }
}

void PackQuery(const ParamRow& w, const ParamRow& gamma, float scale, std::int64_t d, DType rows,
               float* packed) {
  std::fill(packed + d / 32 * 32, packed + PackedLength(d), 0.0f);
  float query[kBlock], factor[kBlock];
  for (std::int64_t begin = 0; begin < d; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, d - begin);
    w.Load(begin, count, query);
    for (std::int64_t k = 0; k < count; ++k) query[k] *= scale;
    if (gamma.defined()) {
      gamma.Load(begin, count, factor);
      for (std::int64_t k = 0; k < count; ++k) query[k] *= factor[k];
    }
    for (std::int64_t k = 0; k < count; ++k) query[k] = CleanNan(query[k]);
    Pack(query, count, rows, packed + begin);
  }
}

void PackRow(const float* from, std::int64_t stride, std::int64_t d, DType rows, float* packed) {
  std::fill(packed + d / 32 * 32, packed + PackedLength(d), 0.0f);
  for (std::int64_t k = 0; k < d; ++k) packed[PackedIndex(rows, k)] = from[k * stride];
}

void UnpackRow(const float* packed, std::int64_t d, DType rows, float* to, std::int64_t stride) {
  for (std::int64_t k = 0; k < d; ++k) to[k * stride] = packed[PackedIndex(rows, k)];
}

void StoreParamGrads(const ParamGrads& g, const float* u, std::int64_t d, DType rows) {
  float sum[kBlock], factor[kBlock];
  for (std::int64_t begin = 0; begin < d; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, d - begin);
    std::fill_n(sum, count, 0.0f);
    if (u != nullptr) Unpack(u + begin, count, rows, sum);
    const auto store = [&](const ParamRow& other, const ParamRow& grad, bool counts) {
      other.Load(begin, count, factor);
      for (std::int64_t k = 0; k < count; ++k) {
        // Without tokens the sum is empty: 0, whatever the parameter.
        factor[k] = counts && u != nullptr ? g.scale * factor[k] * sum[k] : 0.0f;
      }
      grad.Store(begin, count, factor);
    };
    if (g.grad_w.defined()) store(g.gamma, g.grad_w, true);
    if (g.grad_gamma.defined()) store(g.w, g.grad_gamma, g.gamma_counts);
  }
}

TokenChunks::TokenChunks(std::int64_t token_count)
    : tokens(token_count),
      size(std::max<std::int64_t>(8, CeilDiv(token_count, kMostTokenChunks))),
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
