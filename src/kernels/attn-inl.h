// What the kernels of attention residuals share.
//
// Per-target header: include after vec16-inl.h inside a foreach_target file.
#if defined(ANABRANCH_SRC_KERNELS_ATTN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANABRANCH_SRC_KERNELS_ATTN_INL_H_
#undef ANABRANCH_SRC_KERNELS_ATTN_INL_H_
#else
#define ANABRANCH_SRC_KERNELS_ATTN_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "src/kernels/attn_residual.h"
#include "src/simd/units-inl.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {

// Calls f(R, first) for groups of R <= kMost <= 4 rows of nearly the same size: one row alone would
// pay for loading what rows share.
template <int kMost, class F>
HWY_INLINE void ForRowGroups(int count, const F& f) {
  const int groups = (count + kMost - 1) / kMost;
  for (int g = 0, first = 0; g < groups; ++g) {
    const int rows = (count - first + groups - g - 1) / (groups - g);
    if constexpr (kMost >= 4) {
      if (rows == 4) f(std::integral_constant<int, 4>(), first);
    }
    if constexpr (kMost >= 3) {
      if (rows == 3) f(std::integral_constant<int, 3>(), first);
    }
    if (rows == 2) f(std::integral_constant<int, 2>(), first);
    if (rows == 1) f(std::integral_constant<int, 1>(), first);
    first += rows;
  }
}

// The sum of both groups of a unit, 16 lanes each.
HWY_INLINE float SumGroups(const float* HWY_RESTRICT lanes) {
  float sums[16];
  for (int i = 0; i < 16; ++i) sums[i] = lanes[i] + lanes[16 + i];
  return SumLanes16(sums);
}

// Elements of all rows that are scored before the next ones are: the rows then advance side by
// side, each a stream that the hardware prefetcher follows from token to token. Row after row it
// has to find every row anew: 9 GB/s instead of 20 on one core (Sapphire Rapids, L = 9, D = 7168).
inline constexpr std::int64_t kDotChunk = 512;

// How far ahead rows are fetched, in such chunks of a row, counted over the rows, then over the
// chunks, then over the tokens. From 4 to 26 makes no difference.
inline constexpr int kAheadChunks = 12;

// What to fetch for a row of the call while a chunk of it is read.
class Ahead {
 public:
  explicit Ahead(const AttnDots& read) : d_(read.d), ahead_(read.ahead) {
    if (ahead_ == nullptr || read.count == 0) return;  // nothing is fetched
    int row = kAheadChunks % read.count;
    std::int64_t shift = kAheadChunks / read.count * kDotChunk;
    for (int l = 0; l < read.count; ++l) {
      row_[l] = row;
      shift_[l] = shift;
      if (++row < read.count) continue;
      row = 0;
      shift += kDotChunk;
    }
  }

  // For row l at element `begin`. Behind the row's end follows the next token; what is farther than
  // that is not fetched, but its last chunk once more.
  template <class T>
  const T* At(const AttnDots& read, int l, std::int64_t begin) const {
    const std::int64_t k = begin + shift_[l];
    if (k < d_) return static_cast<const T*>(read.rows[row_[l]]) + k;
    return static_cast<const T*>(ahead_[row_[l]]) +
           (k < 2 * d_ ? k - d_ : d_ - 1) / kDotChunk * kDotChunk;
  }

 private:
  std::int64_t d_;
  const void* const* ahead_;
  int row_[kMaxSources];
  std::int64_t shift_[kMaxSources];
};

// Elements of R rows and of what they are multiplied with.
template <int R, class T>
struct DotOperands {
  const T* rows[R];
  const float* query;
  const T* grad;
  const T* ahead[R];
};

// Running sums of part p of R rows: group a and group b of the layout apart.
template <int R, bool kSquares, bool kGrad, class T>
struct DotSums {
  VecF squares[kSquares ? R : 1][2];
  VecF query[R][2];
  VecF grad[kGrad ? R : 1][2];

  template <class Visit>
  HWY_INLINE void ForEach(float* carry, std::size_t p, const Visit& visit) {
    for (int r = 0; r < R; ++r) {
      for (int g = 0; g < 2; ++g) {
        float* at = carry + r * kAttnCarry + g * 16 + static_cast<std::ptrdiff_t>(p * kLanes);
        if constexpr (kSquares) visit(squares[r][g], at);
        visit(query[r][g], at + 32);
        if constexpr (kGrad) visit(grad[r][g], at + 64);
      }
    }
  }

  // Part p of the unit at element k; qa and qb are the query's.
  HWY_INLINE void Add(const DotOperands<R, T>& x, std::int64_t k, std::size_t p, VecF qa, VecF qb) {
    VecF ga = qa, gb = qb;
    if constexpr (kGrad) LoadPart(x.grad + k, p, ga, gb);
    for (int r = 0; r < R; ++r) {
      VecF a, b;
      LoadPart(x.rows[r] + k, p, a, b);
      query[r][0] = hn::MulAdd(qa, a, query[r][0]);
      query[r][1] = hn::MulAdd(qb, b, query[r][1]);
      if constexpr (kSquares) {
        squares[r][0] = hn::MulAdd(a, a, squares[r][0]);
        squares[r][1] = hn::MulAdd(b, b, squares[r][1]);
      }
      if constexpr (kGrad) {
        grad[r][0] = hn::MulAdd(ga, a, grad[r][0]);
        grad[r][1] = hn::MulAdd(gb, b, grad[r][1]);
      }
    }
  }
};

// One lane of a gradient row: alpha dh + (t q - c v), the last product only with the norm.
template <bool kNorm>
HWY_INLINE VecF GradLane(VecF alpha, VecF t, VecF c, VecF dh, VecF q, VecF v) {
  VecF sum = hn::Mul(t, q);
  if constexpr (kNorm) sum = hn::NegMulAdd(c, v, sum);
  return hn::MulAdd(alpha, dh, sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
