// See attn_packed.h. Compiled once per target.
#include "src/kernels/attn_packed.h"

#include <algorithm>
#include <cstring>

#include "src/kernels/attn_residual.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/attn_packed.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "src/simd/dispatch.h"
#include "src/simd/units-inl.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {
namespace {

// Units that are computed side by side: enough chains to hide the latency of FMA.
constexpr int kUnits = 4;

// U units, which begin at element k of the rows.
template <int U, class T>
HWY_INLINE void SumPackedUnits(const AttnSumPacked& call, const T* const* rows, std::int64_t k,
                               float* acc) {
  for (std::size_t p = 0; p < kParts; ++p) {
    float* to = acc + p * kLanes;
    VecF sums[U][2];
    for (int u = 0; u < U; ++u) {
      sums[u][0] = call.add ? hn::LoadU(TagF(), to + u * 32) : ZeroF();
      sums[u][1] = call.add ? hn::LoadU(TagF(), to + u * 32 + 16) : ZeroF();
    }
    for (int l = 0; l < call.count; ++l) {
      const VecF w = SetF(call.weights[l]);
      for (int u = 0; u < U; ++u) {
        VecF a, b;
        LoadPart(rows[l] + k + u * 32, p, a, b);
        sums[u][0] = hn::MulAdd(w, a, sums[u][0]);
        sums[u][1] = hn::MulAdd(w, b, sums[u][1]);
      }
    }
    for (int u = 0; u < U; ++u) {
      hn::StoreU(sums[u][0], TagF(), to + u * 32);
      hn::StoreU(sums[u][1], TagF(), to + u * 32 + 16);
    }
  }
}

template <class T>
void SumPacked(const AttnSumPacked& call) {
  const T* rows[kMaxSources];
  for (int l = 0; l < call.count; ++l) rows[l] = static_cast<const T*>(call.rows[l]);
  std::int64_t k = 0;
  for (; k + kUnits * 32 <= call.d; k += kUnits * 32) {
    SumPackedUnits<kUnits>(call, rows, k, call.acc + k);
  }
  for (; k + 32 <= call.d; k += 32) SumPackedUnits<1>(call, rows, k, call.acc + k);
  if (k == call.d) return;
  T padded[kMaxSources][kUnit] = {};
  for (int l = 0; l < call.count; ++l) {
    std::memcpy(padded[l], rows[l] + k, static_cast<std::size_t>(call.d - k) * sizeof(T));
    rows[l] = padded[l];
  }
  SumPackedUnits<1>(call, rows, 0, call.acc + k);
}

// U units, which begin at element k of the vectors.
template <int U, class T>
HWY_INLINE void MixUnits(const AttnMix& call, std::int64_t k, const T* row, T* out) {
  for (std::size_t p = 0; p < kParts; ++p) {
    VecF sums[U][2];
    for (int u = 0; u < U; ++u) sums[u][0] = sums[u][1] = ZeroF();
    for (std::int64_t j = 0; j < call.count; ++j) {
      const float* vector = call.vectors[j] + k + p * kLanes;
      const VecF w = SetF(call.weights[j]);
      for (int u = 0; u < U; ++u) {
        sums[u][0] = hn::MulAdd(w, hn::LoadU(TagF(), vector + u * 32), sums[u][0]);
        sums[u][1] = hn::MulAdd(w, hn::LoadU(TagF(), vector + u * 32 + 16), sums[u][1]);
      }
    }
    for (int u = 0; u < U; ++u) {
      if (row != nullptr) {
        VecF a, b;
        LoadPart(row + u * 32, p, a, b);
        sums[u][0] = hn::NegMulAdd(SetF(call.c), a, sums[u][0]);
        sums[u][1] = hn::NegMulAdd(SetF(call.c), b, sums[u][1]);
      }
      StorePart(sums[u][0], sums[u][1], p, out + u * 32);
    }
  }
}

template <class T>
void Mix(const AttnMix& call) {
  const T* row = static_cast<const T*>(call.row);
  T* out = static_cast<T*>(call.out);
  const auto at = [row](std::int64_t k) { return row != nullptr ? row + k : row; };
  std::int64_t k = 0;
  for (; k + kUnits * 32 <= call.d; k += kUnits * 32) MixUnits<kUnits>(call, k, at(k), out + k);
  for (; k + 32 <= call.d; k += 32) MixUnits<1>(call, k, at(k), out + k);
  if (k == call.d) return;
  const std::size_t rest = static_cast<std::size_t>(call.d - k) * sizeof(T);
  T padded[kUnit] = {};
  T whole[kUnit];
  if (row != nullptr) std::memcpy(padded, row + k, rest);
  MixUnits<1>(call, k, row != nullptr ? padded : row, whole);
  std::memcpy(out + k, whole, rest);
}

template <class T>
HWY_INLINE void PackUnit(const float* from, float* to) {
  for (std::size_t p = 0; p < kParts; ++p) {
    VecF a, b;
    LoadUnitLanes<T>(from, p, a, b);
    StorePart(a, b, p, to);
  }
}

template <class T>
HWY_INLINE void UnpackUnit(const float* from, float* to) {
  for (std::size_t p = 0; p < kParts; ++p) {
    VecF a, b;
    LoadPart(from, p, a, b);
    StoreUnitLanes<T>(a, b, p, to);
  }
}

template <class T>
void Pack(const AttnPack& call) {
  const float* ahead = call.ahead != nullptr ? call.ahead : call.from;
  std::int64_t k = 0;
  for (; k + 32 <= call.d; k += 32) {
    PrefetchUnit(ahead + k);
    PackUnit<T>(call.from + k, call.to + k);
  }
  if (k == call.d) return;
  float padded[kUnit];
  GatherUnit(call.from + k, 1, static_cast<std::size_t>(call.d - k), padded);
  PackUnit<T>(padded, call.to + k);
}

template <class T>
void Unpack(const AttnUnpack& call) {
  constexpr std::int64_t kRun = 256;
  HWY_ALIGN float buffer[kRun];
  for (std::int64_t begin = 0; begin < call.d; begin += kRun) {
    const std::int64_t count = std::min(kRun, call.d - begin);
    float* to = call.streaming ? buffer : call.to + begin;
    std::int64_t k = 0;
    for (; k + 32 <= count; k += 32) UnpackUnit<T>(call.from + begin + k, to + k);
    if (k < count) {
      float whole[kUnit];
      UnpackUnit<T>(call.from + begin + k, whole);
      std::copy_n(whole, count - k, to + k);
    }
    if (call.streaming) {
      StreamOut(buffer, call.to + begin, static_cast<std::size_t>(count) * sizeof(float));
    }
  }
}

template <class T>
AttnPackedKernels Make() {
  return {&SumPacked<T>, &Mix<T>, &Pack<T>, &Unpack<T>};
}

}  // namespace

AttnPackedKernels AttnPackedTable(DType dtype) {
  return ForActivation(dtype, [](auto type) { return Make<decltype(type)>(); });
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
