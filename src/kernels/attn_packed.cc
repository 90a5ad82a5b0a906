// See attn_packed.h. Compiled once per target.
#include "src/kernels/attn_packed.h"

#include <cstring>

#include "src/kernels/attn_residual.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/attn_packed.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "src/simd/dispatch.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE void SumPackedUnit(const AttnSumPacked& call, const T* const* rows, std::int64_t k,
                              float* acc) {
  for (std::size_t p = 0; p < kParts; ++p) {
    float* to = acc + p * kLanes;
    VecF sa = call.add ? hn::LoadU(TagF(), to) : ZeroF();
    VecF sb = call.add ? hn::LoadU(TagF(), to + 16) : ZeroF();
    for (int l = 0; l < call.count; ++l) {
      VecF a, b;
      LoadPart(rows[l] + k, p, a, b);
      sa = hn::MulAdd(SetF(call.weights[l]), a, sa);
      sb = hn::MulAdd(SetF(call.weights[l]), b, sb);
    }
    hn::StoreU(sa, TagF(), to);
    hn::StoreU(sb, TagF(), to + 16);
  }
}

template <class T>
void SumPacked(const AttnSumPacked& call) {
  const T* rows[kMaxSources];
  for (int l = 0; l < call.count; ++l) rows[l] = static_cast<const T*>(call.rows[l]);
  std::int64_t k = 0;
  for (; k + 32 <= call.d; k += 32) SumPackedUnit(call, rows, k, call.acc + k);
  if (k == call.d) return;
  T padded[kMaxSources][kUnit] = {};
  for (int l = 0; l < call.count; ++l) {
    std::memcpy(padded[l], rows[l] + k, static_cast<std::size_t>(call.d - k) * sizeof(T));
    rows[l] = padded[l];
  }
  SumPackedUnit(call, rows, 0, call.acc + k);
}

template <class T>
HWY_INLINE void MixUnit(const AttnMix& call, std::int64_t k, const T* row, T* out) {
  for (std::size_t p = 0; p < kParts; ++p) {
    VecF sa = ZeroF();
    VecF sb = ZeroF();
    for (std::int64_t j = 0; j < call.count; ++j) {
      const float* vector = call.vectors[j] + k + p * kLanes;
      const VecF w = SetF(call.weights[j]);
      sa = hn::MulAdd(w, hn::LoadU(TagF(), vector), sa);
      sb = hn::MulAdd(w, hn::LoadU(TagF(), vector + 16), sb);
    }
    if (row != nullptr) {
      VecF a, b;
      LoadPart(row, p, a, b);
      sa = hn::NegMulAdd(SetF(call.c), a, sa);
      sb = hn::NegMulAdd(SetF(call.c), b, sb);
    }
    StorePart(sa, sb, p, out);
  }
}

template <class T>
void Mix(const AttnMix& call) {
  const T* row = static_cast<const T*>(call.row);
  T* out = static_cast<T*>(call.out);
  std::int64_t k = 0;
  for (; k + 32 <= call.d; k += 32) MixUnit(call, k, row != nullptr ? row + k : row, out + k);
  if (k == call.d) return;
  const std::size_t rest = static_cast<std::size_t>(call.d - k) * sizeof(T);
  T padded[kUnit] = {};
  T whole[kUnit];
  if (row != nullptr) std::memcpy(padded, row + k, rest);
  MixUnit(call, k, row != nullptr ? padded : row, whole);
  std::memcpy(out + k, whole, rest);
}

template <class T>
AttnPackedKernels Make() {
  return {&SumPacked<T>, &Mix<T>};
}

}  // namespace

AttnPackedKernels AttnPackedTable(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return Make<BFloat16>();
    case DType::kFloat16:
      return Make<Float16>();
    default:
      return Make<float>();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {

HWY_EXPORT(AttnPackedTable);

AttnPackedKernels GetAttnPackedKernels(DType dtype, Target target) {
  return ANABRANCH_DISPATCH(AttnPackedTable, target)(dtype);
}

}  // namespace anabranch
#endif  // HWY_ONCE
