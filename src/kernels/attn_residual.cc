// See attn_residual.h. Compiled once per target.
#include "src/kernels/attn_residual.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/attn_residual.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>
// After foreach_target.h.
#include <hwy/contrib/math/math-inl.h>

#include "src/kernels/attn-inl.h"
#include "src/simd/dispatch.h"
#include "src/simd/units-inl.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {
namespace {

// Elements of a row that are computed before they are written out past the caches: long enough for
// full write-combining buffers, short enough that what the rows share stays in L1.
constexpr std::int64_t kChunk = 512;

// Rows that are computed side by side: enough independent chains to hide the latency of FMA, few
// enough for the registers. Never changes a bit: a row has sums of its own, and what rows share is
// added in their order.
constexpr int kDotRows = kManyRegisters ? 4 : 2;
constexpr int kGradRows = 4;

// Adds `count` elements, a multiple of 32, of R rows to their running sums.
template <int R, bool kSquares, bool kGrad, bool kAhead, class T>
HWY_NOINLINE void DotTile(const DotOperands<R, T>& operands, std::int64_t count, float* carry) {
  const DotOperands<R, T> x = operands;
  for (std::size_t p = 0; p < kParts; ++p) {
    DotSums<R, kSquares, kGrad, T> sums;
    sums.ForEach(carry, p, [](VecF& v, const float* at) HWY_ATTR { v = hn::LoadU(TagF(), at); });
    for (std::int64_t k = 0; k < count; k += 32) {
      for (int r = 0; kAhead && p == 0 && r < R; ++r) PrefetchUnit(x.ahead[r] + k);
      const VecF qa = InRegister(hn::LoadU(TagF(), x.query + k + p * kLanes));
      const VecF qb = InRegister(hn::LoadU(TagF(), x.query + k + 16 + p * kLanes));
      sums.Add(x, k, p, qa, qb);
    }
    sums.ForEach(carry, p, [](VecF& v, float* at) HWY_ATTR { hn::StoreU(v, TagF(), at); });
  }
}

// Elements [begin, begin + count) of R rows from row `first`.
template <int R, bool kSquares, bool kGrad, bool kAhead, class T>
HWY_INLINE void DotGroup(const AttnDots& call, const Ahead& ahead, int first, std::int64_t begin,
                         std::int64_t count, float* carry) {
  DotOperands<R, T> x;
  for (int r = 0; r < R; ++r) x.rows[r] = static_cast<const T*>(call.rows[first + r]) + begin;
  for (int r = 0; kAhead && r < R; ++r) {
    x.ahead[r] = ahead.At<T>(call, first + r, begin);
  }
  x.query = call.query + begin;
  x.grad = kGrad ? static_cast<const T*>(call.grad) + begin : nullptr;
  const std::int64_t whole = count / 32 * 32;
  if (whole > 0) DotTile<R, kSquares, kGrad, kAhead>(x, whole, carry);
  if (whole == count) return;
  const std::size_t rest = static_cast<std::size_t>(count - whole) * sizeof(T);
  T padded[R + 1][kUnit] = {};
  for (int r = 0; r < R; ++r) {
    std::memcpy(padded[r], x.rows[r] + whole, rest);
    x.rows[r] = padded[r];
  }
  if (kGrad) std::memcpy(padded[R], x.grad + whole, rest);
  x.grad = padded[R];
  x.query += whole;
  DotTile<R, kSquares, kGrad, false>(x, 32, carry);
}

template <bool kSquares, bool kGrad, bool kAhead, class T>
void DotRows(const AttnDots& call) {
  HWY_ALIGN float local[kMaxSources * kAttnCarry];
  float* carry = call.carry;
  if (carry == nullptr) {
    carry = local;
    std::fill_n(local, call.count * kAttnCarry, 0.0f);
  }
  const Ahead ahead(call);
  for (std::int64_t begin = 0; begin < call.d; begin += kDotChunk) {
    const std::int64_t count = std::min(kDotChunk, call.d - begin);
    ForRowGroups<kDotRows>(call.count, [&](auto rows, int first) HWY_ATTR {
      DotGroup<decltype(rows)::value, kSquares, kGrad, kAhead, T>(call, ahead, first, begin, count,
                                                                  carry + first * kAttnCarry);
    });
  }
  for (int l = 0; call.out != nullptr && l < call.count; ++l) {
    const float* lanes = carry + l * kAttnCarry;
    call.out[l].squares = kSquares ? SumGroups(lanes) : 0.0f;
    call.out[l].query = SumGroups(lanes + 32);
    call.out[l].grad = kGrad ? SumGroups(lanes + 64) : 0.0f;
  }
}

template <bool kSquares, bool kGrad, class T>
void DotsAhead(const AttnDots& call) {
  return call.ahead != nullptr ? DotRows<kSquares, kGrad, true, T>(call)
                               : DotRows<kSquares, kGrad, false, T>(call);
}

template <class T>
void Dots(const AttnDots& call) {
  if (call.grad != nullptr) {
    return call.squares ? DotsAhead<true, true, T>(call) : DotsAhead<false, true, T>(call);
  }
  return call.squares ? DotsAhead<true, false, T>(call) : DotsAhead<false, false, T>(call);
}

// sum_l weights[l] * rows[l] over U units, which begin at element k.
template <int U, class T>
HWY_INLINE void SumUnits(const AttnSum& call, std::int64_t k, T* out) {
  VecF acc[U][kParts][2];
  for (int u = 0; u < U; ++u) {
    for (std::size_t p = 0; p < kParts; ++p) acc[u][p][0] = acc[u][p][1] = ZeroF();
  }
  for (int l = 0; l < call.count; ++l) {
    const T* row = static_cast<const T*>(call.rows[l]) + k;
    const VecF w = SetF(call.weights[l]);
    for (int u = 0; u < U; ++u) {
      for (std::size_t p = 0; p < kParts; ++p) {
        VecF a, b;
        LoadPart(row + u * kUnit, p, a, b);
        acc[u][p][0] = hn::MulAdd(w, a, acc[u][p][0]);
        acc[u][p][1] = hn::MulAdd(w, b, acc[u][p][1]);
      }
    }
  }
  for (int u = 0; u < U; ++u) {
    for (std::size_t p = 0; p < kParts; ++p) {
      StorePartCleanNan(acc[u][p][0], acc[u][p][1], p, out + u * kUnit);
    }
  }
}

template <class T>
void SumTail(const AttnSum& call, std::int64_t k, std::size_t rest, T* out) {
  T padded[kUnit] = {};
  VecF acc[kParts][2];
  for (std::size_t p = 0; p < kParts; ++p) acc[p][0] = acc[p][1] = ZeroF();
  for (int l = 0; l < call.count; ++l) {
    std::memcpy(padded, static_cast<const T*>(call.rows[l]) + k, rest * sizeof(T));
    for (std::size_t p = 0; p < kParts; ++p) {
      VecF a, b;
      LoadPart(padded, p, a, b);
      acc[p][0] = hn::MulAdd(SetF(call.weights[l]), a, acc[p][0]);
      acc[p][1] = hn::MulAdd(SetF(call.weights[l]), b, acc[p][1]);
    }
  }
  T whole[kUnit];
  for (std::size_t p = 0; p < kParts; ++p) StorePartCleanNan(acc[p][0], acc[p][1], p, whole);
  std::memcpy(out, whole, rest * sizeof(T));
}

template <class T>
void Sum(const AttnSum& call) {
  constexpr int kUnits = kParts == 1 ? 8 : 2;  // 16 sums in registers, 8 on AVX2
  constexpr std::int64_t kStep = kUnits * 32;
  HWY_ALIGN T buffer[kChunk];
  for (std::int64_t begin = 0; begin < call.d; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, call.d - begin);
    T* out = call.streaming ? buffer : static_cast<T*>(call.out) + begin;
    std::int64_t k = 0;
    for (; k + kStep <= count; k += kStep) SumUnits<kUnits>(call, begin + k, out + k);
    for (; k + 32 <= count; k += 32) SumUnits<1>(call, begin + k, out + k);
    if (k < count) SumTail(call, begin + k, static_cast<std::size_t>(count - k), out + k);
    if (call.streaming) {
      StreamOut(buffer, static_cast<T*>(call.out) + begin,
                static_cast<std::size_t>(count) * sizeof(T));
    }
  }
}

// R rows of the gradient and what they are made of.
template <int R, class T>
struct GradOperands {
  const T* rows[R];
  const T* grad;
  const float* query;
  float* u;
  T* out[R];
  const float* alpha;  // [R]
  const float* t;      // [R]
  const float* c;      // [R]
};

// `count` elements, a multiple of 32; u is read and written once.
template <int R, bool kNorm, class T>
HWY_NOINLINE void GradTile(const GradOperands<R, T>& operands, std::int64_t count) {
  const GradOperands<R, T> x = operands;
  VecF alpha[R], t[R], c[R];
  for (int r = 0; r < R; ++r) {
    alpha[r] = SetF(x.alpha[r]);
    t[r] = SetF(x.t[r]);
    c[r] = kNorm ? SetF(x.c[r]) : ZeroF();
  }
  for (std::int64_t k = 0; k < count; k += 32) {
    for (std::size_t p = 0; p < kParts; ++p) {
      VecF ga, gb;
      LoadPart(x.grad + k, p, ga, gb);
      const VecF qa = InRegister(hn::LoadU(TagF(), x.query + k + p * kLanes));
      const VecF qb = InRegister(hn::LoadU(TagF(), x.query + k + 16 + p * kLanes));
      float* u = x.u + k + p * kLanes;
      VecF ua = hn::LoadU(TagF(), u);
      VecF ub = hn::LoadU(TagF(), u + 16);
      for (int r = 0; r < R; ++r) {
        VecF a, b;
        LoadPart(x.rows[r] + k, p, a, b);
        ua = hn::MulAdd(t[r], a, ua);
        ub = hn::MulAdd(t[r], b, ub);
        StorePartCleanNan(GradLane<kNorm>(alpha[r], t[r], c[r], ga, qa, a),
                          GradLane<kNorm>(alpha[r], t[r], c[r], gb, qb, b), p, x.out[r] + k);
      }
      hn::StoreU(ua, TagF(), u);
      hn::StoreU(ub, TagF(), u + 16);
    }
  }
}

// Elements [begin, begin + count) of R rows from row `first`, through a buffer or not.
template <int R, bool kNorm, class T>
HWY_INLINE void GradGroup(const AttnGradRows& call, int first, std::int64_t begin,
                          std::int64_t count, T (*buffer)[kChunk]) {
  GradOperands<R, T> x;
  for (int r = 0; r < R; ++r) {
    x.rows[r] = static_cast<const T*>(call.rows[first + r]) + begin;
    x.out[r] = call.streaming ? buffer[r] : static_cast<T*>(call.out[first + r]) + begin;
  }
  x.grad = static_cast<const T*>(call.grad) + begin;
  x.query = call.query + begin;
  x.u = call.u + begin;
  x.alpha = call.alpha + first;
  x.t = call.t + first;
  x.c = kNorm ? call.c + first : nullptr;
  const std::int64_t whole = count / 32 * 32;
  if (whole > 0) GradTile<R, kNorm>(x, whole);
  if (const std::size_t rest = static_cast<std::size_t>(count - whole) * sizeof(T); rest > 0) {
    T padded[R + 1][kUnit] = {};
    T results[R][kUnit];
    T* out[R];
    for (int r = 0; r < R; ++r) {
      std::memcpy(padded[r], x.rows[r] + whole, rest);
      x.rows[r] = padded[r];
      out[r] = x.out[r] + whole;
      x.out[r] = results[r];
    }
    std::memcpy(padded[R], x.grad + whole, rest);
    x.grad = padded[R];
    x.query += whole;
    x.u += whole;
    GradTile<R, kNorm>(x, 32);
    for (int r = 0; r < R; ++r) std::memcpy(out[r], results[r], rest);
  }
  for (int r = 0; call.streaming && r < R; ++r) {
    StreamOut(buffer[r], static_cast<T*>(call.out[first + r]) + begin,
              static_cast<std::size_t>(count) * sizeof(T));
  }
}

template <bool kNorm, class T>
void GradChunks(const AttnGradRows& call) {
  HWY_ALIGN T buffer[kGradRows][kChunk];
  for (std::int64_t begin = 0; begin < call.d; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, call.d - begin);
    ForRowGroups<kGradRows>(call.count, [&](auto rows, int first) HWY_ATTR {
      GradGroup<decltype(rows)::value, kNorm>(call, first, begin, count, buffer);
    });
  }
}

template <class T>
void GradRows(const AttnGradRows& call) {
  return call.c != nullptr ? GradChunks<true, T>(call) : GradChunks<false, T>(call);
}

void ExpMinus(const float* s, float m, int count, float* out) {
  const TagF df;
  for (int k = 0; k < count; k += static_cast<int>(kLanes)) {
    const auto rest = std::min(kLanes, static_cast<std::size_t>(count - k));
    HWY_ALIGN float lanes[kLanes] = {};
    std::memcpy(lanes, s + k, rest * sizeof(float));
    const VecF x = hn::Sub(hn::Load(df, lanes), SetF(m));
    // Highway's Exp answers 0 for NaN, and converts to an integer what is out of its range.
    const VecF y = hn::Exp(df, hn::Max(x, SetF(-128.0f)));
    hn::Store(hn::IfThenElse(hn::IsNaN(x), x, y), df, lanes);
    std::memcpy(out + k, lanes, rest * sizeof(float));
  }
}

void Flush() { hwy::FlushStream(); }

template <class T>
AttnResidualKernels Make() {
  return {&Dots<T>, &Sum<T>, &GradRows<T>, &ExpMinus, &Flush, kThisTarget};
}

}  // namespace

AttnResidualKernels AttnResidualTable(DType dtype) {
  return ForActivation(dtype, [](auto type) { return Make<decltype(type)>(); });
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {

HWY_EXPORT(AttnResidualTable);

AttnResidualKernels GetAttnResidualKernels(DType dtype, Target target) {
  return ANABRANCH_DISPATCH(AttnResidualTable, target)(dtype);
}

}  // namespace anabranch
#endif  // HWY_ONCE
