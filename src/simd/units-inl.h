// FP32 data in the order of the 16-lane layout (vec16-inl.h): units of 32 floats, lanes `a` then
// lanes `b`, so that FP32 parameters line up with activations of any dtype.
//
// Per-target header: include after vec16-inl.h inside a foreach_target file.
#if defined(ANABRANCH_SRC_SIMD_UNITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANABRANCH_SRC_SIMD_UNITS_INL_H_
#undef ANABRANCH_SRC_SIMD_UNITS_INL_H_
#else
#define ANABRANCH_SRC_SIMD_UNITS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {

// Twelve rows of two vectors and their operands fit 32 registers, six fit 16.
inline constexpr bool kManyRegisters =
    kThisTarget == Target::kAvx512 || kThisTarget == Target::kNeon;

// For a loaded value that several multiply-adds use: GCC would rather repeat the load as an operand
// of each, and with 64-byte vectors that makes the two load ports the limit (projection on one
// Sapphire Rapids core: 112 against 132 GF/s).
HWY_INLINE VecF InRegister(VecF value) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  asm("" : "+v"(value.raw));
#endif
  return value;
}

// 32 FP32 elements in memory order to lanes (part `part`) as activations of type T have them.
template <class T>
HWY_INLINE void LoadUnitLanes(const float* from, std::size_t part, VecF& a, VecF& b) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    hn::LoadInterleaved2(TagF(), from + part * 2 * kLanes, a, b);
  } else {
    LoadPart(from, part, a, b);
  }
}

template <class T>
HWY_INLINE void StoreUnitLanes(VecF a, VecF b, std::size_t part, float* to) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    hn::StoreInterleaved2(a, b, TagF(), to + part * 2 * kLanes);
  } else {
    StorePart(a, b, part, to);
  }
}

// Copies up to 32 strided elements and fills the rest of the unit with zeros.
template <class T>
HWY_INLINE void GatherUnit(const T* from, std::ptrdiff_t stride, std::size_t count, T* unit) {
  for (std::size_t k = 0; k < count; ++k) unit[k] = from[static_cast<std::ptrdiff_t>(k) * stride];
  std::memset(static_cast<void*>(unit + count), 0, (kUnit - count) * sizeof(T));
}

// `count` adjacent activations to FP32 lanes; the last unit is padded with zeros.
template <class T>
HWY_INLINE void WidenRow(const T* from, std::size_t count, float* to) {
  std::size_t k = 0;
  VecF a, b;
  for (; k + kUnit <= count; k += kUnit) {
    for (std::size_t part = 0; part < kParts; ++part) {
      LoadPart(from + k, part, a, b);
      StorePart(a, b, part, to + k);
    }
  }
  if (k == count) return;
  T tail[kUnit];
  GatherUnit(from + k, 1, count - k, tail);
  for (std::size_t part = 0; part < kParts; ++part) {
    LoadPart(tail, part, a, b);
    StorePart(a, b, part, to + k);
  }
}

// Writes a unit past the caches, in whole 64-byte lines. Both addresses are multiples of 64; the
// caller issues hwy::FlushStream() before others read.
template <class T>
HWY_INLINE void StreamUnit(const T* unit, T* to) {
  const hn::CappedTag<std::uint8_t, 64> d;
  const auto* from = reinterpret_cast<const std::uint8_t*>(unit);
  for (std::size_t j = 0; j < kUnit * sizeof(T); j += hn::Lanes(d)) {
    hn::Stream(hn::Load(d, from + j), d, reinterpret_cast<std::uint8_t*>(to) + j);
  }
}

// The tree of SumLanes16 for `count` groups of 16 lanes.
HWY_INLINE void SumLanes16Each(const float* HWY_RESTRICT lanes, int count,
                               float* HWY_RESTRICT out) {
  const hn::CappedTag<float, 4> d4;
  HWY_ALIGN float s[4];
  for (int k = 0; k < count; ++k, lanes += 16) {
    const auto low = hn::Add(hn::LoadU(d4, lanes), hn::LoadU(d4, lanes + 8));
    const auto high = hn::Add(hn::LoadU(d4, lanes + 4), hn::LoadU(d4, lanes + 12));
    hn::Store(hn::Add(low, high), d4, s);
    out[k] = (s[0] + s[2]) + (s[1] + s[3]);
  }
}

// Calls f(size, begin) with compile-time sizes that cover 0 .. count-1.
template <class F>
HWY_INLINE void ForGroups(int count, const F& f) {
  int k = 0;
  if constexpr (kManyRegisters) {
    for (; k + 12 <= count; k += 12) f(std::integral_constant<int, 12>(), k);
  }
  for (; k + 6 <= count; k += 6) f(std::integral_constant<int, 6>(), k);
  for (; k + 2 <= count; k += 2) f(std::integral_constant<int, 2>(), k);
  for (; k < count; ++k) f(std::integral_constant<int, 1>(), k);
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
