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

#include "src/simd/dispatch.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {
namespace {

// Elements of a row that are computed before they are written out past the caches: long enough for
// full write-combining buffers, short enough that what the rows share stays in L1.
constexpr std::int64_t kChunk = 512;

// Rows whose sums run side by side: enough independent chains to hide the latency of FMA, few
// enough for the registers. Never changes a bit: a row has sums of its own.
constexpr int kDotRows = kParts == 1 ? 4 : 1;
constexpr int kGradRows = kParts == 1 ? 4 : 1;

// Elements of all rows that are scored before the next ones are: the rows then advance side by
// side, each a stream that the hardware prefetcher follows from token to token. Row after row it
// has to find every row anew: 9 GB/s instead of 20 on one core (Sapphire Rapids, L = 9, D = 7168).
constexpr std::int64_t kDotChunk = 512;

// Fetches the next token's rows at an even pace, `quarters` lines for every four lines of this one.
template <class T>
class Fetcher {
 public:
  explicit Fetcher(const AttnAhead& ahead) : rows_(ahead.rows), quarters_(ahead.quarters) {}

  // As the unit at element k of row l is computed.
  HWY_INLINE void Unit(int l, std::int64_t k) const {
    const std::int64_t unit = k / 32;
    if (unit % 4 >= quarters_) return;
    const T* at = static_cast<const T*>(rows_[l]) + (unit / 4 * quarters_ + unit % 4) * 32;
    const auto* line = reinterpret_cast<const std::uint8_t*>(at);
    for (std::size_t b = 0; b < kUnit * sizeof(T); b += 64) __builtin_prefetch(line + b, 0, 2);
  }

 private:
  const void* const* rows_;
  int quarters_;
};

// Running sums of R rows: group a and group b of the layout apart, 16 lanes each.
template <int R, bool kSquares, bool kGrad, class T>
struct DotSums {
  VecF query[R][kParts][2];
  VecF squares[kSquares ? R : 1][kParts][2];
  VecF grad[kGrad ? R : 1][kParts][2];

  template <class Visit>
  HWY_INLINE void ForEach(const Visit& visit) {
    for (int r = 0; r < R; ++r) {
      for (std::size_t p = 0; p < kParts; ++p) {
        for (int g = 0; g < 2; ++g) {
          const std::size_t at = static_cast<std::size_t>(r * kAttnCarry + g * 16) + p * kLanes;
          visit(query[r][p][g], at + 32);
          if constexpr (kSquares) visit(squares[r][p][g], at);
          if constexpr (kGrad) visit(grad[r][p][g], at + 64);
        }
      }
    }
  }

  HWY_INLINE void Add(const T* const* rows, const float* q, const T* dh) {
    for (std::size_t p = 0; p < kParts; ++p) {
      const VecF qa = hn::LoadU(TagF(), q + p * kLanes);
      const VecF qb = hn::LoadU(TagF(), q + 16 + p * kLanes);
      VecF ga = qa, gb = qb;
      if constexpr (kGrad) LoadPart(dh, p, ga, gb);
      for (int r = 0; r < R; ++r) {
        VecF a, b;
        LoadPart(rows[r], p, a, b);
        query[r][p][0] = hn::MulAdd(qa, a, query[r][p][0]);
        query[r][p][1] = hn::MulAdd(qb, b, query[r][p][1]);
        if constexpr (kSquares) {
          squares[r][p][0] = hn::MulAdd(a, a, squares[r][p][0]);
          squares[r][p][1] = hn::MulAdd(b, b, squares[r][p][1]);
        }
        if constexpr (kGrad) {
          grad[r][p][0] = hn::MulAdd(ga, a, grad[r][p][0]);
          grad[r][p][1] = hn::MulAdd(gb, b, grad[r][p][1]);
        }
      }
    }
  }
};

float SumGroups(const float* lanes) {
  float sums[16];
  for (int i = 0; i < 16; ++i) sums[i] = lanes[i] + lanes[16 + i];
  return SumLanes16(sums);
}

// Adds elements [begin, begin + count) of rows first .. first + R-1 to their running sums.
template <int R, bool kSquares, bool kGrad, class T>
HWY_NOINLINE void DotTile(const AttnDots& call, int first, std::int64_t begin, std::int64_t count,
                          float* carry) {
  const T* rows[R];
  for (int r = 0; r < R; ++r) rows[r] = static_cast<const T*>(call.rows[first + r]) + begin;
  const float* q = call.query + begin;
  const T* dh = kGrad ? static_cast<const T*>(call.grad) + begin : nullptr;
  DotSums<R, kSquares, kGrad, T> sums;
  sums.ForEach([&](VecF& v, std::size_t at) HWY_ATTR { v = hn::LoadU(TagF(), carry + at); });
  for (std::int64_t units = count / 32; units > 0; --units) {
    sums.Add(rows, q, dh);
    for (int r = 0; r < R; ++r) rows[r] += kUnit;
    q += kUnit;
    if constexpr (kGrad) dh += kUnit;
  }
  if (const auto rest = static_cast<std::size_t>(count % 32); rest > 0) {
    T padded[R][kUnit] = {};
    T padded_dh[kUnit] = {};
    for (int r = 0; r < R; ++r) {
      std::memcpy(padded[r], rows[r], rest * sizeof(T));
      rows[r] = padded[r];
    }
    if constexpr (kGrad) std::memcpy(padded_dh, dh, rest * sizeof(T));
    sums.Add(rows, q, padded_dh);
  }
  sums.ForEach([&](VecF& v, std::size_t at) HWY_ATTR { hn::StoreU(v, TagF(), carry + at); });
}

template <bool kSquares, bool kGrad, class T>
void DotRows(const AttnDots& call) {
  HWY_ALIGN float local[kMaxSources * kAttnCarry];
  float* carry = call.carry;
  if (carry == nullptr) {
    carry = local;
    std::fill_n(local, call.count * kAttnCarry, 0.0f);
  }
  for (std::int64_t begin = 0; begin < call.d; begin += kDotChunk) {
    const std::int64_t count = std::min(kDotChunk, call.d - begin);
    int l = 0;
    for (; l + kDotRows <= call.count; l += kDotRows) {
      DotTile<kDotRows, kSquares, kGrad, T>(call, l, begin, count, carry + l * kAttnCarry);
    }
    for (; l < call.count; ++l) {
      DotTile<1, kSquares, kGrad, T>(call, l, begin, count, carry + l * kAttnCarry);
    }
  }
  for (int l = 0; l < call.count; ++l) {
    const float* lanes = carry + l * kAttnCarry;
    call.out[l].squares = kSquares ? SumGroups(lanes) : 0.0f;
    call.out[l].query = SumGroups(lanes + 32);
    call.out[l].grad = kGrad ? SumGroups(lanes + 64) : 0.0f;
  }
}

template <class T>
void Dots(const AttnDots& call) {
  if (call.grad != nullptr) {
    return call.squares ? DotRows<true, true, T>(call) : DotRows<false, true, T>(call);
  }
  return call.squares ? DotRows<true, false, T>(call) : DotRows<false, false, T>(call);
}

// sum_l weights[l] * rows[l] over U units, which begin at element k.
template <int U, class T>
HWY_INLINE void SumUnits(const AttnSum& call, std::int64_t k, T* out) {
  const Fetcher<T> fetcher(call.ahead);
  VecF acc[U][kParts][2];
  for (int u = 0; u < U; ++u) {
    for (std::size_t p = 0; p < kParts; ++p) acc[u][p][0] = acc[u][p][1] = ZeroF();
  }
  for (int l = 0; l < call.count; ++l) {
    const T* row = static_cast<const T*>(call.rows[l]) + k;
    const VecF w = SetF(call.weights[l]);
    for (int u = 0; u < U; ++u) fetcher.Unit(l, k + u * 32);
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
  constexpr int kUnits = kParts == 1 ? 4 : 2;  // 8 sums in registers on AVX2, too
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

// One unit of R rows of the gradient; u is read and written once.
template <int R, bool kNorm, class T>
HWY_INLINE void GradUnit(const T* const* rows, const T* dh, const float* q, const VecF* alpha,
                         const VecF* t, const VecF* c, float* u, T* const* out) {
  for (std::size_t p = 0; p < kParts; ++p) {
    VecF ga, gb;
    LoadPart(dh, p, ga, gb);
    const VecF qa = hn::LoadU(TagF(), q + p * kLanes);
    const VecF qb = hn::LoadU(TagF(), q + 16 + p * kLanes);
    VecF ua = hn::LoadU(TagF(), u + p * kLanes);
    VecF ub = hn::LoadU(TagF(), u + 16 + p * kLanes);
    for (int r = 0; r < R; ++r) {
      VecF a, b;
      LoadPart(rows[r], p, a, b);
      ua = hn::MulAdd(t[r], a, ua);
      ub = hn::MulAdd(t[r], b, ub);
      VecF da = hn::Mul(t[r], qa);
      VecF db = hn::Mul(t[r], qb);
      if constexpr (kNorm) {
        da = hn::NegMulAdd(c[r], a, da);
        db = hn::NegMulAdd(c[r], b, db);
      }
      StorePartCleanNan(hn::MulAdd(alpha[r], ga, da), hn::MulAdd(alpha[r], gb, db), p, out[r]);
    }
    hn::StoreU(ua, TagF(), u + p * kLanes);
    hn::StoreU(ub, TagF(), u + 16 + p * kLanes);
  }
}

// Elements [begin, begin + count) of rows first .. first + R-1, through a buffer or not.
template <int R, bool kNorm, class T>
HWY_INLINE void GradTile(const AttnGradRows& call, int first, std::int64_t begin,
                         std::int64_t count, T (*buffer)[kChunk]) {
  const Fetcher<T> fetcher(call.ahead);
  VecF alpha[R], t[R], c[R];
  const T* rows[R];
  T* out[R];
  for (int r = 0; r < R; ++r) {
    const int l = first + r;
    alpha[r] = SetF(call.alpha[l]);
    t[r] = SetF(call.t[l]);
    c[r] = kNorm ? SetF(call.c[l]) : ZeroF();
    rows[r] = static_cast<const T*>(call.rows[l]) + begin;
    out[r] = call.streaming ? buffer[r] : static_cast<T*>(call.out[l]) + begin;
  }
  const T* dh = static_cast<const T*>(call.grad) + begin;
  const float* q = call.query + begin;
  float* u = call.u + begin;
  for (std::int64_t k = 0; k + 32 <= count; k += 32) {
    for (int r = 0; r < R; ++r) fetcher.Unit(first + r, begin + k);
    GradUnit<R, kNorm>(rows, dh, q, alpha, t, c, u, out);
    for (int r = 0; r < R; ++r) {
      rows[r] += kUnit;
      out[r] += kUnit;
    }
    dh += kUnit;
    q += kUnit;
    u += kUnit;
  }
  if (const auto rest = static_cast<std::size_t>(count % 32); rest > 0) {
    T padded[R][kUnit] = {};
    T whole[R][kUnit];
    T padded_dh[kUnit] = {};
    T* whole_rows[R];
    for (int r = 0; r < R; ++r) {
      std::memcpy(padded[r], rows[r], rest * sizeof(T));
      rows[r] = padded[r];
      whole_rows[r] = whole[r];
    }
    std::memcpy(padded_dh, dh, rest * sizeof(T));
    GradUnit<R, kNorm>(rows, padded_dh, q, alpha, t, c, u, whole_rows);
    for (int r = 0; r < R; ++r) std::memcpy(out[r], whole[r], rest * sizeof(T));
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
    int l = 0;
    for (; l + kGradRows <= call.count; l += kGradRows) {
      GradTile<kGradRows, kNorm>(call, l, begin, count, buffer);
    }
    for (; l < call.count; ++l) GradTile<1, kNorm>(call, l, begin, count, buffer);
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

HWY_EXPORT(AttnResidualTable);

AttnResidualKernels GetAttnResidualKernels(DType dtype, Target target) {
  return ANABRANCH_DISPATCH(AttnResidualTable, target)(dtype);
}

}  // namespace anabranch
#endif  // HWY_ONCE
