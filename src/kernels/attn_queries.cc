// See attn_queries.h. Compiled once per target.
#include "src/kernels/attn_queries.h"

#include <algorithm>
#include <cstring>

#include "src/kernels/attn_residual.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/attn_queries.cc"
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

// Elements that are computed before the next ones are: what they need stays in L1.
constexpr std::int64_t kChunk = 256;

// Rows and queries whose sums run side by side: 4 x 2 x 2 registers, or 2 x 2 x 2 of 16.
constexpr int kDotQueries = kManyRegisters ? 4 : 2;
constexpr int kDotRows = 2;
constexpr int kSumQueries = 4;

template <int R, int Q, class T>
struct DotOperands {
  const T* rows[R];
  const float* queries[Q];
  float* carry[Q];  // [R][kQueryCarry] each
};

// `count` elements, a multiple of 32.
template <int R, int Q, class T>
HWY_NOINLINE void DotTile(const DotOperands<R, Q, T>& operands, std::int64_t count) {
  const DotOperands<R, Q, T> x = operands;
  for (std::size_t p = 0; p < kParts; ++p) {
    const std::size_t lane = p * kLanes;
    VecF sums[Q][R][2];
    for (int s = 0; s < Q; ++s) {
      for (int r = 0; r < R; ++r) {
        sums[s][r][0] = hn::LoadU(TagF(), x.carry[s] + r * kQueryCarry + lane);
        sums[s][r][1] = hn::LoadU(TagF(), x.carry[s] + r * kQueryCarry + 16 + lane);
      }
    }
    for (std::int64_t k = 0; k < count; k += 32) {
      VecF a[R], b[R];
      for (int r = 0; r < R; ++r) LoadPart(x.rows[r] + k, p, a[r], b[r]);
      for (int s = 0; s < Q; ++s) {
        const VecF qa = InRegister(hn::LoadU(TagF(), x.queries[s] + k + lane));
        const VecF qb = InRegister(hn::LoadU(TagF(), x.queries[s] + k + 16 + lane));
        for (int r = 0; r < R; ++r) {
          sums[s][r][0] = hn::MulAdd(qa, a[r], sums[s][r][0]);
          sums[s][r][1] = hn::MulAdd(qb, b[r], sums[s][r][1]);
        }
      }
    }
    for (int s = 0; s < Q; ++s) {
      for (int r = 0; r < R; ++r) {
        hn::StoreU(sums[s][r][0], TagF(), x.carry[s] + r * kQueryCarry + lane);
        hn::StoreU(sums[s][r][1], TagF(), x.carry[s] + r * kQueryCarry + 16 + lane);
      }
    }
  }
}

// Elements [begin, begin + count) of all rows, of which `rows` gives the addresses of element
// `begin`, with all queries.
template <class T>
void DotPiece(const AttnQueryDots& call, const T* const* rows, std::int64_t begin,
              std::int64_t count) {
  const auto queries = static_cast<int>(call.query_count);
  ForRowGroups<kDotQueries>(queries, [&](auto query_group, int s) HWY_ATTR {
    constexpr int kQueries = decltype(query_group)::value;
    ForRowGroups<kDotRows>(call.count, [&](auto row_group, int l) HWY_ATTR {
      constexpr int kRows = decltype(row_group)::value;
      DotOperands<kRows, kQueries, T> x;
      for (int r = 0; r < kRows; ++r) x.rows[r] = rows[l + r];
      for (int q = 0; q < kQueries; ++q) {
        x.queries[q] = call.queries + (s + q) * call.query_stride + begin;
        x.carry[q] = call.carry + (static_cast<std::int64_t>(s + q) * call.count + l) * kQueryCarry;
      }
      DotTile(x, count);
    });
  });
}

template <class T>
void Dots(const AttnQueryDots& call) {
  const T* rows[kMaxSources];
  const std::int64_t whole = call.d / 32 * 32;
  for (std::int64_t begin = 0; begin < whole; begin += kChunk) {
    for (int l = 0; l < call.count; ++l) rows[l] = static_cast<const T*>(call.rows[l]) + begin;
    DotPiece(call, rows, begin, std::min(kChunk, whole - begin));
  }
  if (whole < call.d) {
    T padded[kMaxSources][kUnit];
    for (int l = 0; l < call.count; ++l) {
      GatherUnit(static_cast<const T*>(call.rows[l]) + whole, 1,
                 static_cast<std::size_t>(call.d - whole), padded[l]);
      rows[l] = padded[l];
    }
    DotPiece(call, rows, whole, 32);
  }
  const std::int64_t sums = call.out != nullptr ? call.query_count * call.count : 0;
  for (std::int64_t i = 0; i < sums; ++i) call.out[i] = SumGroups(call.carry + i * kQueryCarry);
}

// `count` elements, a multiple of 32, of Q sums; `to` + q * kChunk receives sum q. U units at once.
template <int U, int Q, class T>
HWY_NOINLINE void SumTile(const T* const* rows, int row_count, std::int64_t begin,
                          const float* weights, std::int64_t count, float* to) {
  for (std::int64_t k = 0; k < count; k += U * 32) {
    for (std::size_t p = 0; p < kParts; ++p) {
      VecF acc[Q][U][2];
      for (int q = 0; q < Q; ++q) {
        for (int u = 0; u < U; ++u) acc[q][u][0] = acc[q][u][1] = ZeroF();
      }
      for (int l = 0; l < row_count; ++l) {
        VecF a[U], b[U];
        for (int u = 0; u < U; ++u) LoadPart(rows[l] + begin + k + u * 32, p, a[u], b[u]);
        for (int q = 0; q < Q; ++q) {
          const VecF w = SetF(weights[q * row_count + l]);
          for (int u = 0; u < U; ++u) {
            acc[q][u][0] = hn::MulAdd(w, a[u], acc[q][u][0]);
            acc[q][u][1] = hn::MulAdd(w, b[u], acc[q][u][1]);
          }
        }
      }
      for (int q = 0; q < Q; ++q) {
        for (int u = 0; u < U; ++u) {
          StoreUnitLanes<T>(acc[q][u][0], acc[q][u][1], p, to + q * kChunk + k + u * 32);
        }
      }
    }
  }
}

// Elements [begin, begin + count) of queries s .. s + Q-1, of which `rows` + from are read.
template <int Q, class T>
HWY_INLINE void SumQueries(const AttnQuerySums& call, const T* const* rows, std::int64_t from,
                           int s, std::int64_t begin, std::int64_t count) {
  constexpr int kUnits = kManyRegisters ? 2 : 1;
  HWY_ALIGN float buffer[Q * kChunk];
  const float* weights = call.weights + static_cast<std::int64_t>(s) * call.count;
  const std::int64_t padded = (count + 31) / 32 * 32;
  const std::int64_t tiled = padded / (kUnits * 32) * (kUnits * 32);
  if (tiled > 0) SumTile<kUnits, Q>(rows, call.count, from, weights, tiled, buffer);
  if (tiled < padded) {
    SumTile<1, Q>(rows, call.count, from + tiled, weights, padded - tiled, buffer + tiled);
  }
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  for (int q = 0; q < Q; ++q) {
    if (call.streaming) {
      StreamOut(buffer + q * kChunk, call.out[s + q] + begin, bytes);
    } else {
      std::memcpy(call.out[s + q] + begin, buffer + q * kChunk, bytes);
    }
  }
}

template <class T>
void Sums(const AttnQuerySums& call) {
  const T* rows[kMaxSources];
  for (int l = 0; l < call.count; ++l) rows[l] = static_cast<const T*>(call.rows[l]);
  const auto queries = static_cast<int>(call.query_count);
  const std::int64_t whole = call.d / 32 * 32;
  for (std::int64_t begin = 0; begin < whole; begin += kChunk) {
    ForRowGroups<kSumQueries>(queries, [&](auto group, int s) HWY_ATTR {
      SumQueries<decltype(group)::value>(call, rows, begin, s, begin,
                                         std::min(kChunk, whole - begin));
    });
  }
  if (whole == call.d) return;
  T padded[kMaxSources][kUnit];
  for (int l = 0; l < call.count; ++l) {
    GatherUnit(rows[l] + whole, 1, static_cast<std::size_t>(call.d - whole), padded[l]);
    rows[l] = padded[l];
  }
  ForRowGroups<kSumQueries>(queries, [&](auto group, int s) HWY_ATTR {
    SumQueries<decltype(group)::value>(call, rows, 0, s, whole, call.d - whole);
  });
}

// `count` elements, a multiple of 32.
template <class T>
HWY_INLINE void JoinUnits(const AttnJoin& call, const float* o, const float* ahead, const T* row,
                          std::int64_t count, T* out) {
  const VecF old_weight = SetF(call.old_weight);
  const VecF new_weight = SetF(call.new_weight);
  for (std::int64_t k = 0; k < count; k += 32) {
    PrefetchUnit(ahead + k);
    for (std::size_t p = 0; p < kParts; ++p) {
      VecF oa, ob, a, b;
      LoadUnitLanes<T>(o + k, p, oa, ob);
      LoadPart(row + k, p, a, b);
      oa = hn::MulAdd(new_weight, a, hn::Mul(old_weight, oa));
      ob = hn::MulAdd(new_weight, b, hn::Mul(old_weight, ob));
      StorePart(oa, ob, p, out + k);
    }
  }
}

template <class T>
void Join(const AttnJoin& call) {
  constexpr std::int64_t kRun = 512;
  HWY_ALIGN T buffer[kRun];
  const T* row = static_cast<const T*>(call.row);
  const float* ahead = call.ahead != nullptr ? call.ahead : call.o;
  for (std::int64_t begin = 0; begin < call.d; begin += kRun) {
    const std::int64_t count = std::min(kRun, call.d - begin);
    T* out = static_cast<T*>(call.out) + begin;
    T* to = call.streaming ? buffer : out;
    const std::int64_t whole = count / 32 * 32;
    JoinUnits(call, call.o + begin, ahead + begin, row + begin, whole, to);
    if (const auto rest = static_cast<std::size_t>(count - whole); rest > 0) {
      float o[kUnit];
      T padded[kUnit], result[kUnit];
      GatherUnit(call.o + begin + whole, 1, rest, o);
      GatherUnit(row + begin + whole, 1, rest, padded);
      JoinUnits(call, o, o, padded, 32, result);
      std::memcpy(to + whole, result, rest * sizeof(T));
    }
    if (call.streaming) StreamOut(buffer, out, static_cast<std::size_t>(count) * sizeof(T));
  }
}

template <class T>
AttnQueryKernels Make() {
  return {&Dots<T>, &Sums<T>, &Join<T>};
}

}  // namespace

AttnQueryKernels AttnQueryTable(DType dtype) {
  return ForActivation(dtype, [](auto type) { return Make<decltype(type)>(); });
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {

HWY_EXPORT(AttnQueryTable);

AttnQueryKernels GetAttnQueryKernels(DType dtype, Target target) {
  return ANABRANCH_DISPATCH(AttnQueryTable, target)(dtype);
}

}  // namespace anabranch
#endif  // HWY_ONCE
