// The parameters w (query) and gamma of an attention residual: read as FP32, and their gradients.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_PARAMS_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_PARAMS_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/context.h"
#include "anabranch/tensor.h"

namespace anabranch {

// A vector of D parameters: FP32 or 16-bit, any stride.
class ParamRow {
 public:
  ParamRow() = default;
  // [D] or [1, D]; of a [S, D] tensor, row `row`. Absent: reads as ones.
  explicit ParamRow(const TensorView& view, std::int64_t row = 0);

  bool defined() const { return data_ != nullptr; }
  // Elements [begin, begin + count).
  void Load(std::int64_t begin, std::int64_t count, float* to) const;
  void Store(std::int64_t begin, std::int64_t count, const float* from) const;  // rounds once

 private:
  std::byte* data_ = nullptr;
  std::int64_t stride_ = 0;
  DType dtype_ = DType::kUndefined;
};

// packed[k] = (scale * w[k]) * gamma[k], padded with zeros; the order of rows of `rows`.
void PackQuery(const ParamRow& w, const ParamRow& gamma, float scale, std::int64_t d, DType rows,
               float* packed);

// Copies an FP32 row of any stride into packed order, padded with zeros, and back, element by
// element; dense rows: AttnPackedKernels.
void PackRow(const float* from, std::int64_t stride, std::int64_t d, DType rows, float* packed);
void UnpackRow(const float* packed, std::int64_t d, DType rows, float* to, std::int64_t stride);

// The gradients of w and gamma from u = sum of t v (packed), or zeros if u is null:
// grad_w = (scale * gamma) * u, grad_gamma = (scale * w) * u. Absent ones are skipped;
// gamma_counts = false: the result does not depend on gamma.
struct ParamGrads {
  ParamRow w, gamma, grad_w, grad_gamma;
  float scale = 1;
  bool gamma_counts = true;
};
void StoreParamGrads(const ParamGrads& grads, const float* u, std::int64_t d, DType rows);

// Sums over tokens: tokens are cut into chunks that depend on their number alone, each chunk adds
// its tokens in order to a vector of its own, and the vectors are added in a fixed tree. So the
// bits depend neither on threads nor on who computed what, and the memory not on the token count.
struct TokenChunks {
  // At most kMostTokenChunks chunks of at least 8 tokens: enough for 64 threads from 512 tokens on.
  explicit TokenChunks(std::int64_t token_count);
  std::int64_t tokens;
  std::int64_t size;
  std::int64_t count;
};
inline constexpr std::int64_t kMostTokenChunks = 64;

// Adds `count` vectors of `length` floats, `stride` apart, into the first; in place, on `context`.
void SumChunks(float* vectors, std::int64_t count, std::int64_t stride, std::int64_t length,
               const Context& context, int threads);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_PARAMS_H_
