// Checks that the operators with a projection (mhc_pre, mhc_pre_sinkhorn, mhc_head) share.
#ifndef ANABRANCH_SRC_CORE_MHC_CHECK_H_
#define ANABRANCH_SRC_CORE_MHC_CHECK_H_

#include <cstdint>

#include "anabranch/mhc_options.h"
#include "src/core/check.h"

namespace anabranch {

inline constexpr int kMaxPreStreams = 16;
inline constexpr int kMaxPermutationStreams = 5;

inline std::int64_t Factorial(std::int64_t n) { return n <= 1 ? 1 : n * Factorial(n - 1); }

// Logits of the residual part; kUnknown if n is, or is outside the form's limits.
inline std::int64_t ResidualSize(Residual residual, std::int64_t n) {
  if (residual == Residual::kNone) return 0;
  const bool permutation = residual == Residual::kPermutation;
  if (n < 1 || n > (permutation ? kMaxPermutationStreams : kMaxPreStreams)) return kUnknown;
  return residual == Residual::kMatrix ? n * n : Factorial(n);
}

// What x and the residual form say about the sizes of everything else. Refined by the activations,
// which are matched first; then Settle() computes rows and K for the rest.
struct PreSizes {
  Dims tokens;
  std::int64_t n = kUnknown;
  std::int64_t d = kUnknown;
  std::int64_t res = kUnknown;   // logits of the residual part
  std::int64_t rows = kUnknown;  // F
  std::int64_t k = kUnknown;     // n * D

  // x [*, n, D] with n in range for the form.
  void FromX(Checker& c, const TensorView& x, Residual residual) {
    c.Sane("x", x, 2, "[*, n, D]");
    if (!c.ok()) return;
    tokens = LeadingDims(x, x.rank() - 2);
    n = x.sizes[x.rank() - 2];
    d = x.sizes[x.rank() - 1];
    CheckLimits(c, residual);
  }
  void CheckLimits(Checker& c, Residual residual) const {
    const bool permutation = residual == Residual::kPermutation;
    c.InRange(permutation ? "x: n (permutation form)" : "x: n", n, 1,
              permutation ? kMaxPermutationStreams : kMaxPreStreams);
    c.InRange("x: D", d, 1, INT64_MAX / 16);
  }
  void Streams(Checker& c, const char* name, const TensorView& t) {
    Dims inner{n, d};
    c.MatchesTokens(name, t, &tokens, &inner, "x");
    n = inner[0];
    d = inner[1];
  }
  void Hidden(Checker& c, const char* name, const TensorView& t) {
    Dims inner{d};
    c.MatchesTokens(name, t, &tokens, &inner, "x");
    d = inner[0];
  }
  void PerStream(Checker& c, const char* name, const TensorView& t) {
    Dims inner{n};
    c.MatchesTokens(name, t, &tokens, &inner, "x");
    n = inner[0];
  }
  void PerToken(Checker& c, const char* name, const TensorView& t) {
    Dims inner;
    c.MatchesTokens(name, t, &tokens, &inner, "x");
  }
  // [*] or [*, 1].
  void PerTokenColumn(Checker& c, const char* name, const TensorView& t) {
    Dims inner;
    if (t.rank() == tokens.rank + 1) inner.push_back(1);
    c.MatchesTokens(name, t, &tokens, &inner, "x");
  }
  // sum_out [2 * num_iters, T, n] and norm_out [2 * num_iters, T, n, n]; num_iters may be unknown.
  void Iterates(Checker& c, const TensorView& sum_out, const TensorView& norm_out,
                std::int64_t num_iters) const {
    if (!c.ok()) return;  // num_iters may be anything
    const std::int64_t steps = num_iters == kUnknown ? kUnknown : 2 * num_iters;
    Dims sums{steps, NumElements(tokens), n};
    c.Matches("sum_out", sum_out, &sums, "x and num_iters");
    Dims norms{sums[0], sums[1], n, n};
    c.Matches("norm_out", norm_out, &norms, "x and num_iters");
  }
  void Gamma(Checker& c, const char* name, const TensorView& t) {
    Dims pattern{n, d};
    c.Matches(name, t, &pattern, "x");
    n = pattern[0];
    d = pattern[1];
  }
  // Rows of the residual part: [*, n, n] or [*, n*n]; permutation: [*, n!].
  void Residuals(Checker& c, const char* name, const TensorView& t, Residual residual) {
    if (residual == Residual::kMatrix) return c.MatchesMatrix(name, t, &tokens, &n, "x");
    Dims inner{ResidualSize(residual, n)};
    c.MatchesTokens(name, t, &tokens, &inner, "x");
  }
  // To be called when n and D are as well known as they will be, which may be from another tensor
  // than x; `post`: rows of that part.
  void Settle(Checker& c, Residual residual, bool post = true) {
    CheckLimits(c, residual);
    if (!c.ok()) return;
    res = ResidualSize(residual, n);
    rows = n == kUnknown ? kUnknown : (post ? 2 * n : n) + res;
    k = n == kUnknown || d == kUnknown ? kUnknown : n * d;
  }
  void Phi(Checker& c, const char* name, const TensorView& t) {
    Dims pattern{rows, k};
    c.Matches(name, t, &pattern, "x and the residual form");
    if (!c.ok() || !t.defined()) return;
    rows = pattern[0];
    k = pattern[1];
  }
  void Rows(Checker& c, const char* name, const TensorView& t) {
    Dims pattern{rows};
    c.Matches(name, t, &pattern, "x and the residual form");
    rows = pattern[0];
  }
  void PerRow(Checker& c, const char* name, const TensorView& t) {
    Dims inner{rows};
    c.MatchesTokens(name, t, &tokens, &inner, "x and the residual form");
    rows = inner[0];
  }
  static void Alpha(Checker& c, const char* name, const TensorView& t, std::int64_t entries) {
    Dims pattern{entries};
    c.Matches(name, t, &pattern, "the residual form");
  }
};

// norm_eps, hc_eps >= 0, post_multiplier finite, op_impl_mode 0 or 1.
void CheckPreOptions(Checker& c, const MhcOptions& options);

// Also of mhc_pre_sinkhorn: clamp_low <= clamp_high.
void CheckPreSinkhornOptions(Checker& c, const MhcOptions& options);

// num_iters in 1 .. a million.
void CheckIterations(Checker& c, const MhcOptions& options);

// Both caches of the iterates or none.
void CheckTogether(Checker& c, const TensorView& sum_out, const TensorView& norm_out);

// What a mhc_pre_sinkhorn can be asked to keep for its backward.
struct PreSinkhornCaches {
  const TensorView& h_pre;
  const TensorView& h_mix;
  const TensorView& inv_rms;
  const TensorView& sum_out;
  const TensorView& norm_out;
};

// The first three together; the last two together, and only with the first three.
void CheckCaches(Checker& c, const PreSinkhornCaches& caches);

// In shape inference: the caches that the arguments of a mhc_pre_sinkhorn ask for (one of the
// three: all three; one of the iterates: all five).
template <class Args>
void SetPreSinkhornCaches(const PreSizes& s, Args* a) {
  const DType coefficient = Checker::CoefficientFor(a->x.dtype);
  const bool iterates = a->sum_out.defined() || a->norm_out.defined();
  if (iterates || a->h_pre.defined() || a->h_mix.defined() || a->inv_rms.defined()) {
    SetOutput(&a->h_pre, coefficient, Concat(s.tokens, {s.n}));
    SetOutput(&a->h_mix, coefficient, Concat(s.tokens, {s.rows}));
    SetOutput(&a->inv_rms, coefficient, s.tokens);
  }
  if (iterates) {
    const std::int64_t steps = 2 * a->options.num_iters;
    const std::int64_t tokens = NumElements(s.tokens);
    SetOutput(&a->sum_out, coefficient, {steps, tokens, s.n});
    SetOutput(&a->norm_out, coefficient, {steps, tokens, s.n, s.n});
  }
}

}  // namespace anabranch

#endif  // ANABRANCH_SRC_CORE_MHC_CHECK_H_
