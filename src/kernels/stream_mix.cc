// See stream_mix.h. Compiled once per target.
#include "src/kernels/stream_mix.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/stream_mix.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "src/simd/dispatch.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {
namespace {

// Elements of a row that are computed before they are written out. A chunk of all rows fits L1;
// non-temporal stores that alternate between rows in shorter runs collapse to a fraction of the
// memory bandwidth.
constexpr std::int64_t kChunk = 256;

// How far ahead each row is prefetched, in elements: a few lines a unit, so that the line-fill
// buffers never see a burst. GB/s of one thread on a Xeon (model 207) virtual machine that others
// used too, BF16, D = 4096, forward and backward on AVX-512, then on AVX2, for (chunks ahead,
// chunk): (2, 256) 18.4 16.7 15.2 12.4, (3, 256) 18.3 14.8 15.2 12.0, (4, 256) 18.2 13.4 13.1 9.9,
// (1, 512) 18.9 13.1 15.0 8.4, (2, 512) 18.7 17.1 14.5 12.4, (4, 128) 14.2 12.0 10.0 8.1.
constexpr std::int64_t kAhead = 2 * kChunk;

// Distance, in elements, from what is computed at `begin` of a row to what is prefetched then: past
// the row's end that is the beginning of the same row of the next token.
std::ptrdiff_t Ahead(std::int64_t begin, std::int64_t d, std::ptrdiff_t next_token) {
  return begin + kAhead < d ? kAhead : kAhead - d + next_token;
}

template <class T>
const T* Row(const void* base, std::ptrdiff_t lane, int i) {
  return static_cast<const T*>(base) + lane * i;
}

template <class T>
T* Row(void* base, std::ptrdiff_t lane, int i) {
  return static_cast<T*>(base) + lane * i;
}

// Whether rows of an output, `lane` elements apart, can be written past the caches from registers:
// a vector is a line, and every row begins with one. Then rows may take turns and no chunk is
// needed in between.
template <class T>
bool OnLines(const void* rows, std::ptrdiff_t lane) {
  const auto bytes = static_cast<std::uintptr_t>(lane) * sizeof(T);
  return kUnitIsLine<T> && (reinterpret_cast<std::uintptr_t>(rows) | bytes) % 64 == 0;
}

template <class T>
HWY_INLINE void StoreUnitPart(VecF a, VecF b, std::size_t part, T* unit, bool past_caches) {
  if constexpr (kUnitIsLine<T>) {
    if (past_caches) return StreamUnitCleanNan(a, b, unit);
  }
  StorePartCleanNan(a, b, part, unit);
}

// Rows of an output of one token. Null: none.
template <class T>
struct OutRows {
  T* rows;
  std::ptrdiff_t lane;
  T* Row(int i) const { return rows + i * lane; }
  OutRows From(std::int64_t k) const { return {rows != nullptr ? rows + k : nullptr, lane}; }
};

// One unit of 32 elements of all rows. N = 0: any n. Reads everything of a part before it writes.
// `y`: through the caches; `lines`: past them (OnLines).
template <int N, class T>
HWY_INLINE void ForwardUnit(const T* x, std::ptrdiff_t x_lane, const T* h_out, const float* h_post,
                            const float* h_res, int any_n, OutRows<T> y, OutRows<T> lines) {
  constexpr int kMax = N > 0 ? N : kMaxStreams;
  const int n = N > 0 ? N : any_n;
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF oa, ob;
    VecF ya[kMax], yb[kMax];
    LoadPart(h_out, part, oa, ob);
    if (h_res != nullptr) {
      for (int i = 0; i < n; ++i) {
        const VecF c = SetF(h_post[i]);
        ya[i] = hn::Mul(c, oa);
        yb[i] = hn::Mul(c, ob);
      }
      for (int j = 0; j < n; ++j) {
        VecF xa, xb;
        LoadPart(x + j * x_lane, part, xa, xb);
        for (int i = 0; i < n; ++i) {
          const VecF c = SetF(h_res[j * n + i]);
          ya[i] = hn::MulAdd(c, xa, ya[i]);
          yb[i] = hn::MulAdd(c, xb, yb[i]);
        }
      }
    } else {
      for (int i = 0; i < n; ++i) {
        VecF xa, xb;
        LoadPart(x + i * x_lane, part, xa, xb);
        const VecF c = SetF(h_post[i]);
        ya[i] = hn::MulAdd(c, oa, xa);
        yb[i] = hn::MulAdd(c, ob, xb);
      }
    }
    if constexpr (kUnitIsLine<T>) {
      for (int i = 0; lines.rows != nullptr && i < n; ++i) {
        StreamUnitCleanNan(ya[i], yb[i], lines.Row(i));
      }
    }
    for (int i = 0; y.rows != nullptr && i < n; ++i) {
      StorePartCleanNan(ya[i], yb[i], part, y.Row(i));
    }
  }
}

// The last, partial unit of the rows at element k.
template <int N, class T>
HWY_NOINLINE void ForwardTail(const StreamMixForward& a, std::int64_t k, std::size_t rest,
                              OutRows<T> y, OutRows<T> lines) {
  T rows[kMaxStreams + 1][kUnit] = {};
  T out[kMaxStreams][kUnit];
  for (int i = 0; i < a.n; ++i) {
    std::memcpy(rows[i], Row<T>(a.x, a.x_lane, i) + k, rest * sizeof(T));
  }
  std::memcpy(rows[a.n], static_cast<const T*>(a.h_out) + k, rest * sizeof(T));
  ForwardUnit<N, T>(rows[0], kUnit, rows[a.n], a.h_post, a.h_res, a.n, {out[0], kUnit}, {});
  for (int i = 0; i < a.n; ++i) {
    if (y.rows != nullptr) std::memcpy(y.Row(i), out[i], rest * sizeof(T));
    if (lines.rows != nullptr) std::memcpy(lines.Row(i), out[i], rest * sizeof(T));
  }
}

template <int N, class T>
void Forward(const StreamMixForward& a) {
  const int n = N > 0 ? N : a.n;
  HWY_ALIGN T buffer[(N > 0 ? N : kMaxStreams) * kChunk];
  const OutRows<T> y{static_cast<T*>(a.y), a.y_lane};
  // What goes past the caches: from registers, or through what lies in them, chunk by chunk.
  const OutRows<T> past = a.streaming ? y : OutRows<T>{};
  const bool direct = past.rows != nullptr && OnLines<T>(past.rows, past.lane);
  const bool chunked = past.rows != nullptr && !direct;
  for (std::int64_t begin = 0; begin < a.d; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, a.d - begin);
    const T* x = static_cast<const T*>(a.x) + begin;
    const T* h_out = static_cast<const T*>(a.h_out) + begin;
    const OutRows<T> kept =
        a.streaming ? OutRows<T>{chunked ? buffer : nullptr, kChunk} : y.From(begin);
    const OutRows<T> lines = direct ? past.From(begin) : OutRows<T>{};
    const T* x_ahead = x + Ahead(begin, a.d, a.x_next);
    const T* h_out_ahead = h_out + Ahead(begin, a.d, a.h_out_next);
    std::int64_t k = 0;
    for (; k + 32 <= count; k += 32) {
      for (int i = 0; i < n; ++i) PrefetchUnit(x_ahead + k + i * a.x_lane);
      PrefetchUnit(h_out_ahead + k);
      ForwardUnit<N>(x + k, a.x_lane, h_out + k, a.h_post, a.h_res, n, kept.From(k), lines.From(k));
    }
    if (const auto rest = static_cast<std::size_t>(count - k); rest > 0) {
      ForwardTail<N>(a, begin + k, rest, kept.From(k), lines.From(k));
    }
    for (int i = 0; chunked && i < n; ++i) {
      StreamOut(kept.Row(i), past.Row(i) + begin, static_cast<std::size_t>(count) * sizeof(T));
    }
  }
}

// grad_x and grad_h_out of one unit.
template <int N, class T>
HWY_INLINE void BackwardUnit(const T* g, std::ptrdiff_t g_lane, const float* h_post,
                             const float* h_res, int any_n, T* grad_x, std::ptrdiff_t grad_x_lane,
                             T* grad_h_out, bool past_caches = false) {
  constexpr int kMax = N > 0 ? N : kMaxStreams;
  const int n = N > 0 ? N : any_n;
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF ga[kMax], gb[kMax];
    for (int i = 0; i < n; ++i) LoadPart(g + i * g_lane, part, ga[i], gb[i]);
    VecF oa = hn::Mul(SetF(h_post[0]), ga[0]);
    VecF ob = hn::Mul(SetF(h_post[0]), gb[0]);
    for (int i = 1; i < n; ++i) {
      oa = hn::MulAdd(SetF(h_post[i]), ga[i], oa);
      ob = hn::MulAdd(SetF(h_post[i]), gb[i], ob);
    }
    StoreUnitPart(oa, ob, part, grad_h_out, past_caches);
    for (int j = 0; j < n; ++j) {
      VecF xa = ga[j];
      VecF xb = gb[j];
      if (h_res != nullptr) {
        const float* c = h_res + j * n;
        xa = hn::Mul(SetF(c[0]), ga[0]);
        xb = hn::Mul(SetF(c[0]), gb[0]);
        for (int i = 1; i < n; ++i) {
          xa = hn::MulAdd(SetF(c[i]), ga[i], xa);
          xb = hn::MulAdd(SetF(c[i]), gb[i], xb);
        }
      }
      StoreUnitPart(xa, xb, part, grad_x + j * grad_x_lane, past_caches);
    }
  }
}

// sums[l][i] += left_l . right_i, 16 lanes each, over `units` units: L x R of them in registers.
// The side with fewer rows is held in registers too, the other goes by. Prefetches the right-hand
// rows `ahead` elements further on.
template <int L, int R, class T>
HWY_INLINE void SumBlock(const T* const* left, const T* const* right, std::int64_t units,
                         std::ptrdiff_t ahead, float* sums, int sums_row) {
  const TagF df;
  constexpr bool kHoldLeft = L < R;
  constexpr int kHeld = kHoldLeft ? L : R;
  constexpr int kPassing = kHoldLeft ? R : L;
  const T* const* held = kHoldLeft ? left : right;
  const T* const* passing = kHoldLeft ? right : left;
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF acc[L][R];
    for (int l = 0; l < L; ++l) {
      for (int r = 0; r < R; ++r) {
        acc[l][r] = hn::LoadU(df, sums + (l * sums_row + r) * 16 + part * kLanes);
      }
    }
    for (std::int64_t u = 0; u < units; ++u) {
      VecF ha[kHeld], hb[kHeld];
      for (int h = 0; h < kHeld; ++h) LoadPart(held[h] + u * 32, part, ha[h], hb[h]);
      for (int p = 0; p < kPassing; ++p) {
        VecF pa, pb;
        LoadPart(passing[p] + u * 32, part, pa, pb);
        for (int h = 0; h < kHeld; ++h) {
          VecF& sum = kHoldLeft ? acc[h][p] : acc[p][h];
          sum = hn::MulAdd(pb, hb[h], hn::MulAdd(pa, ha[h], sum));
        }
      }
      for (int r = 0; part == 0 && r < R; ++r) PrefetchUnit(right[r] + u * 32 + ahead);
    }
    for (int l = 0; l < L; ++l) {
      for (int r = 0; r < R; ++r) {
        hn::StoreU(acc[l][r], df, sums + (l * sums_row + r) * 16 + part * kLanes);
      }
    }
  }
}

// All sums of `lefts` x R rows.
template <int R, class T>
HWY_INLINE void SumRows(const T* const* left, int lefts, const T* const* right, std::int64_t units,
                        std::ptrdiff_t ahead, float* sums, int n) {
  int l = 0;
  for (; l + 5 <= lefts; l += 5)
    SumBlock<5, R>(left + l, right, units, ahead, sums + l * n * 16, n);
  for (; l < lefts; ++l) SumBlock<1, R>(left + l, right, units, ahead, sums + l * n * 16, n);
}

// Right-hand rows of one register block of sums: 5 x 4 sums (all of n = 4) with 32 registers, 5 x 2
// with 16.
constexpr int kBlock = kLanes == 16 ? 4 : 2;

template <class T>
void AddSums(const StreamMixBackward& a, const T* const* left, const T* const* right,
             std::int64_t units, std::ptrdiff_t ahead) {
  // left rows 0..n-1 are x, row n is h_out: without grad_h_res only the last one counts.
  const int first = a.want_grad_h_res ? 0 : a.n;
  const int lefts = a.n + 1 - first;
  float* sums = a.sums + first * a.n * 16;
  int r = 0;
  for (; r + kBlock <= a.n; r += kBlock) {
    SumRows<kBlock>(left + first, lefts, right + r, units, ahead, sums + r * 16, a.n);
  }
  for (; r < a.n; ++r) SumRows<1>(left + first, lefts, right + r, units, ahead, sums + r * 16, a.n);
}

// The last, partial unit of a row, padded with zeros.
template <int N, class T>
void BackwardTail(const StreamMixBackward& a, const T* const* left, const T* const* right,
                  std::size_t rest, T* grad_x, std::ptrdiff_t grad_x_lane, T* grad_h_out) {
  T rows[2 * kMaxStreams + 1][kUnit] = {};
  T out[kMaxStreams + 1][kUnit];
  const T* padded[2 * kMaxStreams + 1];
  for (int i = 0; i < 2 * a.n + 1; ++i) {
    std::memcpy(rows[i], i < a.n ? right[i] : left[i - a.n], rest * sizeof(T));
    padded[i] = rows[i];
  }
  AddSums(a, padded + a.n, padded, 1, 0);
  BackwardUnit<N>(rows[0], kUnit, a.h_post, a.h_res, a.n, out[0], kUnit, out[a.n]);
  for (int j = 0; j < a.n; ++j) std::memcpy(grad_x + j * grad_x_lane, out[j], rest * sizeof(T));
  std::memcpy(grad_h_out, out[a.n], rest * sizeof(T));
}

template <int N, class T>
void Backward(const StreamMixBackward& a) {
  const int n = N > 0 ? N : a.n;
  HWY_ALIGN T buffer[((N > 0 ? N : kMaxStreams) + 1) * kChunk];
  const bool past_caches =
      a.streaming && OnLines<T>(a.grad_x, a.grad_x_lane) && OnLines<T>(a.grad_h_out, 0);
  const bool buffered = a.streaming && !past_caches;
  for (std::int64_t begin = 0; begin < a.d; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, a.d - begin);
    const std::int64_t units = count / 32;
    const T* left[kMaxStreams + 1];
    const T* right[kMaxStreams];
    for (int i = 0; i < n; ++i) {
      left[i] = Row<T>(a.x, a.x_lane, i) + begin;
      right[i] = Row<T>(a.grad_y, a.grad_y_lane, i) + begin;
    }
    left[n] = static_cast<const T*>(a.h_out) + begin;
    T* grad_x = buffered ? buffer : static_cast<T*>(a.grad_x) + begin;
    const std::ptrdiff_t grad_x_lane = buffered ? kChunk : a.grad_x_lane;
    T* grad_h_out = buffered ? buffer + n * kChunk : static_cast<T*>(a.grad_h_out) + begin;
    const std::ptrdiff_t x_ahead = Ahead(begin, a.d, a.x_next);
    const std::ptrdiff_t h_out_ahead = Ahead(begin, a.d, a.h_out_next);
    // Sums first: grad_x may be grad_y.
    AddSums(a, left, right, units, Ahead(begin, a.d, a.grad_y_next));
    for (std::int64_t u = 0; u < units; ++u) {
      for (int i = 0; i < n; ++i) PrefetchUnit(left[i] + u * 32 + x_ahead);
      PrefetchUnit(left[n] + u * 32 + h_out_ahead);
      BackwardUnit<N>(right[0] + u * 32, a.grad_y_lane, a.h_post, a.h_res, n, grad_x + u * 32,
                      grad_x_lane, grad_h_out + u * 32, past_caches);
    }
    if (const auto rest = static_cast<std::size_t>(count - units * 32); rest > 0) {
      const std::int64_t k = units * 32;
      for (int i = 0; i < n; ++i) {
        left[i] += k;
        right[i] += k;
      }
      left[n] += k;
      BackwardTail<N>(a, left, right, rest, grad_x + k, grad_x_lane, grad_h_out + k);
    }
    if (!buffered) continue;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    for (int j = 0; j < n; ++j) {
      StreamOut(grad_x + j * kChunk, Row<T>(a.grad_x, a.grad_x_lane, j) + begin, bytes);
    }
    StreamOut(grad_h_out, static_cast<T*>(a.grad_h_out) + begin, bytes);
  }
}

void FinishSums(const float* sums, int count, float* out) {
  for (int k = 0; k < count; ++k) out[k] = SumLanes16(sums + k * 16);
}

void Flush() { hwy::FlushStream(); }

template <int N, class T>
StreamMixKernels Make(const char* name) {
  return {&Forward<N, T>, &Backward<N, T>, &FinishSums, &Flush, name, kThisTarget};
}

template <class T>
StreamMixKernels ForStreams(int n) {
  switch (n) {
    case 1:
      return Make<1, T>("n1");
    case 2:
      return Make<2, T>("n2");
    case 4:
      return Make<4, T>("n4");
    case 8:
      return Make<8, T>("n8");
    default:
      return Make<0, T>("generic");
  }
}

}  // namespace

StreamMixKernels StreamMixTable(DType dtype, int n) {
  return ForActivation(dtype, [n](auto type) { return ForStreams<decltype(type)>(n); });
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {

HWY_EXPORT(StreamMixTable);

StreamMixKernels GetStreamMixKernels(DType dtype, int n, Target target) {
  return ANABRANCH_DISPATCH(StreamMixTable, target)(dtype, n);
}

}  // namespace anabranch
#endif  // HWY_ONCE
