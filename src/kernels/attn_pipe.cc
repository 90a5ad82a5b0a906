// See attn_pipe.h. Compiled once per target.
#include "src/kernels/attn_pipe.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/attn_pipe.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "src/kernels/attn-inl.h"
#include "src/simd/dispatch.h"
#include "src/simd/units-inl.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {
namespace {

// Rows of both tokens side by side. Never changes a bit: see attn_residual.cc. Three rows of a
// gradient need more than 16 registers, but one alone, which fits, pays for loading what rows
// share: 41 against 35 us a token on AVX2 (L = 9, D = 7168).
constexpr int kSumRows = kManyRegisters ? 3 : 2;
constexpr int kGradRows = 3;

// Where a sum over rows goes.
enum class Sink { kKeep, kStore, kStream };

// R rows of the token that is read, and the same rows of the one that is summed.
template <int R, class T>
struct SumOperands {
  DotOperands<R, T> read;
  const T* cached[R];
  const float* weights;  // [R]
  const float* before;   // sums over the rows before
  float* sums;           // and with these; may be `before`
  T* out;
};

template <int R, class T>
HWY_INLINE void PrefetchPart(const DotOperands<R, T>& x, std::int64_t k, std::size_t p) {
  if (k / 32 % static_cast<std::int64_t>(kParts) != static_cast<std::int64_t>(p)) return;
  for (int r = 0; r < R; ++r) PrefetchUnit(x.ahead[r] + k);
}

// `count` elements, a multiple of 32.
template <int R, bool kSquares, Sink kSink, class T>
HWY_NOINLINE void SumTile(const SumOperands<R, T>& operands, std::int64_t count, float* carry) {
  const SumOperands<R, T> x = operands;
  VecF weights[R];
  for (int r = 0; r < R; ++r) weights[r] = SetF(x.weights[r]);
  for (std::size_t p = 0; p < kParts; ++p) {
    DotSums<R, kSquares, false, T> dots;
    dots.ForEach(carry, p, [](VecF& v, const float* at) HWY_ATTR { v = hn::LoadU(TagF(), at); });
    for (std::int64_t k = 0; k < count; k += 32) {
      PrefetchPart(x.read, k, p);
      const std::int64_t at = k + static_cast<std::int64_t>(p * kLanes);
      VecF qa = hn::LoadU(TagF(), x.read.query + at);
      VecF qb = hn::LoadU(TagF(), x.read.query + at + 16);
      if constexpr (kManyRegisters) {
        qa = InRegister(qa);
        qb = InRegister(qb);
      }
      dots.Add(x.read, k, p, qa, qb);
      VecF sa = hn::LoadU(TagF(), x.before + at);
      VecF sb = hn::LoadU(TagF(), x.before + at + 16);
      for (int r = 0; r < R; ++r) {
        VecF a, b;
        LoadPart(x.cached[r] + k, p, a, b);
        sa = hn::MulAdd(weights[r], a, sa);
        sb = hn::MulAdd(weights[r], b, sb);
      }
      if constexpr (kSink == Sink::kKeep) {
        hn::StoreU(sa, TagF(), x.sums + at);
        hn::StoreU(sb, TagF(), x.sums + at + 16);
      } else if constexpr (kSink == Sink::kStore) {
        StorePartCleanNan(sa, sb, p, x.out + k);
      } else {
        StreamUnitCleanNan(sa, sb, x.out + k);
      }
    }
    dots.ForEach(carry, p, [](VecF& v, float* at) HWY_ATTR { hn::StoreU(v, TagF(), at); });
  }
}

// Rows first ... first + R - 1 at element `begin`.
template <int R, class T>
HWY_INLINE DotOperands<R, T> Operands(const AttnDots& read, const Ahead& ahead, int first,
                                      std::int64_t begin) {
  DotOperands<R, T> x;
  for (int r = 0; r < R; ++r) {
    x.rows[r] = static_cast<const T*>(read.rows[first + r]) + begin;
    x.ahead[r] = ahead.At<T>(read, first + r, begin);
  }
  x.query = read.query + begin;
  x.grad = read.grad != nullptr ? static_cast<const T*>(read.grad) + begin : nullptr;
  return x;
}

// Rows that begin at a line can be written past the caches from the registers.
template <class T>
bool Direct(bool streaming, const void* out) {
  return kUnitIsLine<T> && streaming && reinterpret_cast<std::uintptr_t>(out) % 64 == 0;
}

alignas(64) constexpr float kZeros[kDotChunk] = {};

// Rows first ... first + R - 1 of both tokens at element `begin`; `sums` are those of this chunk.
template <int R, class T, class Cached>
HWY_INLINE SumOperands<R, T> SumOf(const AttnDots& read, const Ahead& ahead, const Cached& cached,
                                   int first, std::int64_t begin, float* sums) {
  SumOperands<R, T> x;
  x.read = Operands<R, T>(read, ahead, first, begin);
  for (int r = 0; r < R; ++r) {
    x.cached[r] = static_cast<const T*>(cached.rows[first + r]) + begin;
  }
  x.weights = cached.weights + first;
  x.before = x.sums = sums;
  x.out = nullptr;
  return x;
}

template <bool kSquares, class T>
void SumChunks(const AttnDots& read, const AttnSum& cached) {
  HWY_ALIGN float sums[kDotChunk];
  HWY_ALIGN T buffer[kDotChunk];
  const bool direct = Direct<T>(cached.streaming, cached.out);
  const Ahead ahead(read);
  for (std::int64_t begin = 0; begin < read.d; begin += kDotChunk) {
    const std::int64_t count = std::min(kDotChunk, read.d - begin);
    T* const out = static_cast<T*>(cached.out) + begin;
    ForRowGroups<kSumRows>(read.count, [&](auto rows, int first) HWY_ATTR {
      constexpr int R = decltype(rows)::value;
      SumOperands<R, T> x = SumOf<R, T>(read, ahead, cached, first, begin, sums);
      if (first == 0) x.before = kZeros;
      x.out = cached.streaming && !direct ? buffer : out;
      float* carry = read.carry + first * kAttnCarry;
      if (first + R < read.count) return SumTile<R, kSquares, Sink::kKeep>(x, count, carry);
      if constexpr (kUnitIsLine<T>) {
        if (direct) return SumTile<R, kSquares, Sink::kStream>(x, count, carry);
      }
      return SumTile<R, kSquares, Sink::kStore>(x, count, carry);
    });
    if (cached.streaming && !direct) {
      StreamOut(buffer, out, static_cast<std::size_t>(count) * sizeof(T));
    }
  }
}

template <bool kSquares, class T>
void SumPackedChunks(const AttnDots& read, const AttnSumPacked& cached) {
  const Ahead ahead(read);
  for (std::int64_t begin = 0; begin < read.d; begin += kDotChunk) {
    const std::int64_t count = std::min(kDotChunk, read.d - begin);
    ForRowGroups<kSumRows>(read.count, [&](auto rows, int first) HWY_ATTR {
      constexpr int R = decltype(rows)::value;
      SumOperands<R, T> x = SumOf<R, T>(read, ahead, cached, first, begin, cached.acc + begin);
      if (first == 0 && !cached.add) x.before = kZeros;
      SumTile<R, kSquares, Sink::kKeep>(x, count, read.carry + first * kAttnCarry);
    });
  }
}

// R rows of the token that is read, and the same rows of the one whose gradient is written.
template <int R, class T>
struct GradOperands {
  DotOperands<R, T> read;
  const T* cached[R];
  const T* grad;  // dh of the cached token
  float* u;
  T* out[R];
  const float* alpha;  // [R]
  const float* t;      // [R]
  const float* c;      // [R]
};

// `count` elements, a multiple of 32.
template <int R, bool kNorm, bool kSquares, bool kStream, class T>
HWY_NOINLINE void GradTile(const GradOperands<R, T>& operands, std::int64_t count, float* carry) {
  const GradOperands<R, T> x = operands;
  VecF alpha[R], t[R], c[R];
  for (int r = 0; r < R; ++r) {
    alpha[r] = SetF(x.alpha[r]);
    t[r] = SetF(x.t[r]);
    c[r] = kNorm ? SetF(x.c[r]) : ZeroF();
  }
  for (std::size_t p = 0; p < kParts; ++p) {
    DotSums<R, kSquares, true, T> dots;
    dots.ForEach(carry, p, [](VecF& v, const float* at) HWY_ATTR { v = hn::LoadU(TagF(), at); });
    for (std::int64_t k = 0; k < count; k += 32) {
      PrefetchPart(x.read, k, p);
      const std::int64_t at = k + static_cast<std::int64_t>(p * kLanes);
      const VecF qa = InRegister(hn::LoadU(TagF(), x.read.query + at));
      const VecF qb = InRegister(hn::LoadU(TagF(), x.read.query + at + 16));
      dots.Add(x.read, k, p, qa, qb);
      VecF ga, gb;
      LoadPart(x.grad + k, p, ga, gb);
      VecF ua = hn::LoadU(TagF(), x.u + at);
      VecF ub = hn::LoadU(TagF(), x.u + at + 16);
      for (int r = 0; r < R; ++r) {
        VecF a, b;
        LoadPart(x.cached[r] + k, p, a, b);
        ua = hn::MulAdd(t[r], a, ua);
        ub = hn::MulAdd(t[r], b, ub);
        const VecF da = GradLane<kNorm>(alpha[r], t[r], c[r], ga, qa, a);
        const VecF db = GradLane<kNorm>(alpha[r], t[r], c[r], gb, qb, b);
        if constexpr (kStream) {
          StreamUnitCleanNan(da, db, x.out[r] + k);
        } else {
          StorePartCleanNan(da, db, p, x.out[r] + k);
        }
      }
      hn::StoreU(ua, TagF(), x.u + at);
      hn::StoreU(ub, TagF(), x.u + at + 16);
    }
    dots.ForEach(carry, p, [](VecF& v, float* at) HWY_ATTR { hn::StoreU(v, TagF(), at); });
  }
}

// Elements [begin, begin + count) of R rows from row `first`.
template <int R, bool kNorm, bool kSquares, class T>
HWY_INLINE void GradGroup(const AttnDots& read, const Ahead& ahead, const AttnGradRows& cached,
                          int first, std::int64_t begin, std::int64_t count,
                          T (*buffer)[kDotChunk]) {
  GradOperands<R, T> x;
  x.read = Operands<R, T>(read, ahead, first, begin);
  bool direct = true;
  for (int r = 0; r < R; ++r) {
    x.cached[r] = static_cast<const T*>(cached.rows[first + r]) + begin;
    direct = direct && Direct<T>(cached.streaming, cached.out[first + r]);
  }
  for (int r = 0; r < R; ++r) {
    x.out[r] =
        cached.streaming && !direct ? buffer[r] : static_cast<T*>(cached.out[first + r]) + begin;
  }
  x.grad = static_cast<const T*>(cached.grad) + begin;
  x.u = cached.u + begin;
  x.alpha = cached.alpha + first;
  x.t = cached.t + first;
  x.c = kNorm ? cached.c + first : nullptr;
  float* carry = read.carry + first * kAttnCarry;
  if constexpr (kUnitIsLine<T>) {
    if (direct) return GradTile<R, kNorm, kSquares, true>(x, count, carry);
  }
  GradTile<R, kNorm, kSquares, false>(x, count, carry);
  for (int r = 0; cached.streaming && r < R; ++r) {
    StreamOut(buffer[r], static_cast<T*>(cached.out[first + r]) + begin,
              static_cast<std::size_t>(count) * sizeof(T));
  }
}

template <bool kNorm, bool kSquares, class T>
void GradChunks(const AttnDots& read, const AttnGradRows& cached) {
  HWY_ALIGN T buffer[kGradRows][kDotChunk];
  const Ahead ahead(read);
  for (std::int64_t begin = 0; begin < read.d; begin += kDotChunk) {
    const std::int64_t count = std::min(kDotChunk, read.d - begin);
    ForRowGroups<kGradRows>(read.count, [&](auto rows, int first) HWY_ATTR {
      GradGroup<decltype(rows)::value, kNorm, kSquares>(read, ahead, cached, first, begin, count,
                                                        buffer);
    });
  }
}

template <class T>
void DotsAndSum(const AttnDots& read, const AttnSum& cached) {
  return read.squares ? SumChunks<true, T>(read, cached) : SumChunks<false, T>(read, cached);
}

template <class T>
void DotsAndSumPacked(const AttnDots& read, const AttnSumPacked& cached) {
  return read.squares ? SumPackedChunks<true, T>(read, cached)
                      : SumPackedChunks<false, T>(read, cached);
}

template <class T>
void DotsAndGradRows(const AttnDots& read, const AttnGradRows& cached) {
  if (cached.c == nullptr) return GradChunks<false, false, T>(read, cached);
  return read.squares ? GradChunks<true, true, T>(read, cached)
                      : GradChunks<true, false, T>(read, cached);
}

template <class T>
AttnPipeKernels Make() {
  return {&DotsAndSum<T>, &DotsAndSumPacked<T>, &DotsAndGradRows<T>};
}

}  // namespace

AttnPipeKernels AttnPipeTable(DType dtype) {
  return ForActivation(dtype, [](auto type) { return Make<decltype(type)>(); });
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {

HWY_EXPORT(AttnPipeTable);

AttnPipeKernels GetAttnPipeKernels(DType dtype, Target target) {
  return ANABRANCH_DISPATCH(AttnPipeTable, target)(dtype);
}

}  // namespace anabranch
#endif  // HWY_ONCE
