// The fixed 16-lane layout. Rows are read in units of 32 elements, as two groups of 16 lanes `a`
// and `b`; lane l of a target is lane l of all targets, whatever the vector width, so sums kept a
// lane each have the same bits everywhere.
//
//   float, Float16:  a = elements 0..15, b = elements 16..31
//   BFloat16:        a = even elements, b = odd elements (a 32-bit word holds one of each; widening
//                    is a shift and a mask, and no lane ever crosses)
//
// A vector register holds kLanes of the 16; part p (0 <= p < kParts) stands for lanes
// p*kLanes ... p*kLanes + kLanes-1.
//
// Per-target header: include after hwy/highway.h inside a foreach_target file.
#if defined(ANABRANCH_SRC_SIMD_VEC16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANABRANCH_SRC_SIMD_VEC16_INL_H_
#undef ANABRANCH_SRC_SIMD_VEC16_INL_H_
#else
#define ANABRANCH_SRC_SIMD_VEC16_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "anabranch/cpu.h"
#include "anabranch/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// What this code is compiled for; kernels report it, so that a test can tell what really ran.
inline constexpr Target kThisTarget =
#if HWY_TARGET == HWY_EMU128
    Target::kEmu128;
#elif HWY_ARCH_ARM
    Target::kNeon;
#elif HWY_TARGET == HWY_AVX3
    Target::kAvx512;
#elif HWY_TARGET == HWY_AVX2
    Target::kAvx2;
#else
    Target::kSse4;
#endif

inline constexpr std::size_t kUnit = 32;  // elements a unit

using TagF = hn::CappedTag<float, 16>;
using TagU = hn::RebindToUnsigned<TagF>;
using TagI = hn::RebindToSigned<TagF>;
using TagHalf = hn::Rebind<std::uint16_t, TagF>;
using VecF = hn::Vec<TagF>;
using VecU = hn::Vec<TagU>;

inline constexpr std::size_t kLanes = hn::MaxLanes(TagF());
inline constexpr std::size_t kParts = 16 / kLanes;

HWY_INLINE VecF SetF(float value) { return hn::Set(TagF(), value); }
HWY_INLINE VecF ZeroF() { return hn::Zero(TagF()); }

// FP32 bits rounded to a bfloat16 in the upper half (lower half: garbage). Keeps NaNs whose lower
// 16 bits are zero: the processor's own and every widened bfloat16's.
HWY_INLINE VecU RoundToUpper16CleanNan(VecF value) {
  const TagU du;
  const VecU u = hn::BitCast(du, value);
  const VecU odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  return hn::Add(hn::Add(u, hn::Set(du, 0x7fffu)), odd);
}

// The same for any NaN.
HWY_INLINE VecU RoundToUpper16(VecF value) {
  const TagU du;
  const VecU quiet = hn::Or(hn::BitCast(du, value), hn::Set(du, 0x00400000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, RoundToUpper16CleanNan(value));
}

// With a hardware conversion to binary16 and back: nearest even, subnormals kept.
inline constexpr bool kNativeFloat16 =
    kThisTarget != Target::kEmu128 && kThisTarget != Target::kSse4;

// binary16 bits (zero-extended) to FP32, in integer arithmetic; see src/core/half.h.
HWY_INLINE VecF WidenFloat16Bits(VecU half) {
  const TagF df;
  const TagU du;
  const VecU sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
  const VecU magnitude = hn::And(half, hn::Set(du, 0x7fffu));
  const VecU mantissa = hn::And(half, hn::Set(du, 0x3ffu));
  const VecU normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du, 112u << 23));
  const VecF tiny =
      hn::Mul(hn::ConvertTo(df, hn::BitCast(TagI(), mantissa)), hn::Set(df, 0x1p-24f));
  const VecU quiet = hn::IfThenElseZero(hn::Ne(mantissa, hn::Zero(du)), hn::Set(du, 0x400000u));
  const VecU special = hn::Or(hn::Or(hn::Set(du, 0x7f800000u), quiet), hn::ShiftLeft<13>(mantissa));
  const VecU exponent = hn::And(half, hn::Set(du, 0x7c00u));
  VecU bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), hn::BitCast(du, tiny), normal);
  bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x7c00u)), special, bits);
  return hn::BitCast(df, hn::Or(sign, bits));
}

// FP32 to binary16 bits in the low half, nearest even; see src/core/half.h.
HWY_INLINE VecU NarrowFloat16Bits(VecF value) {
  const TagF df;
  const TagU du;
  const VecU u = hn::BitCast(du, value);
  const VecU sign = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 0x8000u));
  const VecU magnitude = hn::And(u, hn::Set(du, 0x7fffffffu));
  const VecU nan =
      hn::Or(hn::Set(du, 0x7e00u), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x1ffu)));
  const VecF shifted = hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f));
  const VecU tiny = hn::Sub(hn::BitCast(du, shifted), hn::Set(du, 0x3f000000u));
  const VecU odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const VecU biased = hn::Sub(magnitude, hn::Set(du, 0x38000000u));
  const VecU normal = hn::ShiftRight<13>(hn::Add(biased, hn::Add(odd, hn::Set(du, 0xfffu))));
  VecU bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000u)), tiny, normal);
  bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x477ff000u)), bits, hn::Set(du, 0x7c00u));
  bits = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), nan, bits);
  return hn::Or(sign, bits);
}

HWY_INLINE VecF LoadHalf(const Float16* from) {
  if constexpr (kNativeFloat16) {
    const hn::Rebind<hwy::float16_t, TagF> dh;
    return hn::PromoteTo(TagF(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
  } else {
    const auto bits = hn::LoadU(TagHalf(), reinterpret_cast<const std::uint16_t*>(from));
    return WidenFloat16Bits(hn::PromoteTo(TagU(), bits));
  }
}

HWY_INLINE void StoreHalf(VecF value, Float16* to) {
  if constexpr (kNativeFloat16) {
    const hn::Rebind<hwy::float16_t, TagF> dh;
    hn::StoreU(hn::DemoteTo(dh, value), dh, reinterpret_cast<hwy::float16_t*>(to));
  } else {
    const auto bits = hn::BitCast(TagI(), NarrowFloat16Bits(value));
    hn::StoreU(hn::DemoteTo(TagHalf(), bits), TagHalf(), reinterpret_cast<std::uint16_t*>(to));
  }
}

// Reads part `part` of the unit of 32 elements at `unit`.
HWY_INLINE void LoadPart(const float* unit, std::size_t part, VecF& a, VecF& b) {
  a = hn::LoadU(TagF(), unit + part * kLanes);
  b = hn::LoadU(TagF(), unit + 16 + part * kLanes);
}

HWY_INLINE void LoadPart(const Float16* unit, std::size_t part, VecF& a, VecF& b) {
  a = LoadHalf(unit + part * kLanes);
  b = LoadHalf(unit + 16 + part * kLanes);
}

HWY_INLINE void LoadPart(const BFloat16* unit, std::size_t part, VecF& a, VecF& b) {
  const TagU du;
  const hn::Repartition<std::uint16_t, TagU> dh;  // 2-byte loads: the address may be odd words
  const VecU words = hn::BitCast(
      du, hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(unit) + part * 2 * kLanes));
  a = hn::BitCast(TagF(), hn::ShiftLeft<16>(words));
  b = hn::BitCast(TagF(), hn::And(words, hn::Set(du, 0xffff0000u)));
}

// Fetches a unit that will be read soon.
template <class T>
HWY_INLINE void PrefetchUnit(const T* unit) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(unit);
  for (std::size_t k = 0; k < kUnit * sizeof(T); k += 64) hwy::Prefetch(bytes + k);
}

// Rounds once, to nearest even, and writes part `part` of the unit at `unit`.
HWY_INLINE void StorePart(VecF a, VecF b, std::size_t part, float* unit) {
  hn::StoreU(a, TagF(), unit + part * kLanes);
  hn::StoreU(b, TagF(), unit + 16 + part * kLanes);
}

HWY_INLINE void StorePart(VecF a, VecF b, std::size_t part, Float16* unit) {
  StoreHalf(a, unit + part * kLanes);
  StoreHalf(b, unit + 16 + part * kLanes);
}

HWY_INLINE void StoreWords(VecU a, VecU b, std::size_t part, BFloat16* unit) {
  const hn::Repartition<std::uint16_t, TagU> dh;
  const VecU words = hn::Or(hn::ShiftRight<16>(a), hn::And(b, hn::Set(TagU(), 0xffff0000u)));
  hn::StoreU(hn::BitCast(dh, words), dh,
             reinterpret_cast<std::uint16_t*>(unit) + part * 2 * kLanes);
}

HWY_INLINE void StorePart(VecF a, VecF b, std::size_t part, BFloat16* unit) {
  StoreWords(RoundToUpper16(a), RoundToUpper16(b), part, unit);
}

// Both roundings of a word at once, in 16-bit lanes: the upper halves plus the carry out of the
// lower halves + 0x7fff + (upper half odd), which is the top bit of an average. Eight or nine
// instructions a vector instead of ten or eleven one by one.
HWY_INLINE hn::Vec<hn::Repartition<std::uint16_t, TagU>> WordsCleanNan(VecF a, VecF b) {
  const TagU du;
  const hn::Repartition<std::uint16_t, TagU> dh;
  const VecU ua = hn::BitCast(du, a);
  const VecU ub = hn::BitCast(du, b);
  const auto upper = hn::OddEven(hn::BitCast(dh, ub), hn::BitCast(dh, hn::ShiftRight<16>(ua)));
  const auto lower = hn::OddEven(hn::BitCast(dh, hn::ShiftLeft<16>(ub)), hn::BitCast(dh, ua));
  const auto odd = hn::And(upper, hn::Set(dh, std::uint16_t{1}));
  const auto half = hn::Or(odd, hn::Set(dh, std::uint16_t{0x7ffe}));
  const auto carry = hn::ShiftRight<15>(hn::AverageRound(lower, half));
  return hn::Add(upper, carry);
}

// StorePart for results of arithmetic whose FP32 inputs have no NaN but the processor's own
// (CleanNan): the test for NaN, a third of the cost of a store, is left out.
template <class T>
HWY_INLINE void StorePartCleanNan(VecF a, VecF b, std::size_t part, T* unit) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Repartition<std::uint16_t, TagU> dh;
    hn::StoreU(WordsCleanNan(a, b), dh, reinterpret_cast<std::uint16_t*>(unit) + part * 2 * kLanes);
  } else {
    StorePart(a, b, part, unit);
  }
}

// Whether a unit of T is one vector of one 64-byte line: then it can go past the caches from the
// registers, and rows may take turns, as no line is ever written in parts.
template <class T>
inline constexpr bool kUnitIsLine = std::is_same_v<T, BFloat16>&& kParts == 1;

// StorePartCleanNan past the caches; `unit` is a multiple of 64 bytes. The caller issues
// hwy::FlushStream() before others read.
template <class T>
HWY_INLINE void StreamUnitCleanNan(VecF a, VecF b, T* unit) {
  static_assert(kUnitIsLine<T>);
  const hn::Repartition<std::uint16_t, TagU> dh;
  hn::Stream(WordsCleanNan(a, b), dh, reinterpret_cast<std::uint16_t*>(unit));
}

// Sum of 16 lanes in the fixed tree: l with l+8, then +4, +2, +1.
HWY_INLINE float SumLanes16(const float* HWY_RESTRICT lanes) {
  float s8[8];
  for (int i = 0; i < 8; ++i) s8[i] = lanes[i] + lanes[i + 8];
  const float s0 = s8[0] + s8[4];
  const float s1 = s8[1] + s8[5];
  const float s2 = s8[2] + s8[6];
  const float s3 = s8[3] + s8[7];
  return (s0 + s2) + (s1 + s3);
}

// Copies `bytes` to `to` past the caches: ordinary stores up to the first 64-byte line and after
// the last whole one, non-temporal stores between. Runs of at least 512 bytes keep the
// write-combining buffers full. The caller issues hwy::FlushStream() before others read.
HWY_INLINE void StreamOut(const void* from, void* to, std::size_t bytes) {
  const auto* in = static_cast<const std::uint8_t*>(from);
  auto* out = static_cast<std::uint8_t*>(to);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(out) % 64;
  const std::size_t head = misaligned == 0 ? 0 : 64 - misaligned;
  if (bytes < head + 64) {
    std::memcpy(out, in, bytes);
    return;
  }
  std::memcpy(out, in, head);
  std::size_t i = head;
  const hn::CappedTag<std::uint8_t, 64> d;
  for (; i + 64 <= bytes; i += 64) {
    for (std::size_t j = 0; j < 64; j += hn::Lanes(d)) {
      hn::Stream(hn::LoadU(d, in + i + j), d, out + i + j);
    }
  }
  std::memcpy(out + i, in + i, bytes - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
