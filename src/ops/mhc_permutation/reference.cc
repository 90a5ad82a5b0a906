// mhc_permutation as it is defined. Every output is overwritten.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "src/core/tokens.h"
#include "src/kernels/permutation.h"
#include "src/ops/mhc_permutation/mhc_permutation.h"

namespace anabranch {
namespace {

struct Shape {
  explicit Shape(const TensorView& logits)
      : leading(logits.rank() - 1),
        tokens(CountTokens(logits.sizes, leading)),
        count(logits.sizes[leading]),
        n(StreamsOfPermutations(count)) {}
  int leading;
  std::int64_t tokens, count, n;
};

using Weights = std::array<double, kPermutationLogits>;
using Order = std::array<std::int64_t, kPermutationStreams>;

Weights Softmax(const TokenRows& logits, std::int64_t t, std::int64_t count) {
  Weights p = {};
  for (std::int64_t r = 0; r < count; ++r) p[r] = logits.At<double>(t, r);
  const double top = *std::max_element(p.begin(), p.begin() + count);
  double sum = 0;
  for (std::int64_t r = 0; r < count; ++r) sum += p[r] = std::exp(p[r] - top);
  for (std::int64_t r = 0; r < count; ++r) p[r] /= sum;
  return p;
}

// Calls f(r, permutation) for all, in lexicographic order.
template <class F>
void ForEachPermutation(std::int64_t n, const F& f) {
  Order perm = {};
  std::iota(perm.begin(), perm.end(), 0);
  std::int64_t r = 0;
  do {
    f(r++, perm);
  } while (std::next_permutation(perm.begin(), perm.begin() + n));
}

}  // namespace

void MhcPermutationReference(const MhcPermutationArgs& args) {
  const Shape shape(args.logits);
  const TokenRows logits(args.logits, 1);
  const TokenRows h_res = TokenRows::Matrix(args.h_res, shape.leading, shape.n);
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    const Weights p = Softmax(logits, t, shape.count);
    for (std::int64_t e = 0; e < shape.n * shape.n; ++e) {
      h_res.At<double>(t, e / shape.n, e % shape.n) = 0;
    }
    ForEachPermutation(shape.n, [&](std::int64_t r, const Order& perm) {
      for (std::int64_t i = 0; i < shape.n; ++i) h_res.At<double>(t, i, perm[i]) += p[r];
    });
  }
}

void MhcPermutationBackwardReference(const MhcPermutationBackwardArgs& args) {
  const Shape shape(args.logits);
  const TokenRows logits(args.logits, 1), grad_logits(args.grad_logits, 1);
  const TokenRows grad = TokenRows::Matrix(args.grad_h_res, shape.leading, shape.n);
  Weights d = {};
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    const Weights p = Softmax(logits, t, shape.count);
    double dot = 0;
    ForEachPermutation(shape.n, [&](std::int64_t r, const Order& perm) {
      d[r] = 0;
      for (std::int64_t i = 0; i < shape.n; ++i) d[r] += grad.At<double>(t, i, perm[i]);
      dot += p[r] * d[r];
    });
    for (std::int64_t r = 0; r < shape.count; ++r) {
      grad_logits.At<double>(t, r) = p[r] * (d[r] - dot);
    }
  }
}

}  // namespace anabranch
