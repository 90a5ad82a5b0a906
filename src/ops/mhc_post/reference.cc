// mhc_post as it is defined. Every output is overwritten.
#include "src/core/tokens.h"
#include "src/ops/mhc_post/mhc_post.h"

namespace anabranch {
void MhcPostReference(const MhcPostArgs& args) {
  const int leading = args.x.rank() - 2;
  const std::int64_t tokens = CountTokens(args.x.sizes, leading);
  const std::int64_t n = args.x.sizes[leading];
  const std::int64_t d = args.x.sizes[leading + 1];
  const TokenRows x(args.x, 2), h_out(args.h_out, 1), h_post(args.h_post, 1), y(args.y, 2);
  const TokenRows h_res = TokenRows::Matrix(args.h_res, leading, n);
  double column[16];
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t k = 0; k < d; ++k) {
      for (std::int64_t i = 0; i < n; ++i) {
        double sum = h_post.At<double>(t, i) * h_out.At<double>(t, k);
        if (!args.h_res.defined()) sum += x.At<double>(t, i, k);
        for (std::int64_t j = 0; args.h_res.defined() && j < n; ++j) {
          sum += h_res.At<double>(t, j, i) * x.At<double>(t, j, k);
        }
        column[i] = sum;
      }
      for (std::int64_t i = 0; i < n; ++i) y.At<double>(t, i, k) = column[i];
    }
  }
}

void MhcPostBackwardReference(const MhcPostBackwardArgs& args) {
  const int leading = args.x.rank() - 2;
  const std::int64_t tokens = CountTokens(args.x.sizes, leading);
  const std::int64_t n = args.x.sizes[leading];
  const std::int64_t d = args.x.sizes[leading + 1];
  const TokenRows g(args.grad_output, 2), x(args.x, 2), h_out(args.h_out, 1);
  const TokenRows h_post(args.h_post, 1), grad_x(args.grad_x, 2), grad_h_out(args.grad_h_out, 1);
  const TokenRows grad_h_post(args.grad_h_post, 1);
  const TokenRows h_res = TokenRows::Matrix(args.h_res, leading, n);
  const TokenRows grad_h_res = TokenRows::Matrix(args.grad_h_res, leading, n);
  double column[16];
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::int64_t k = 0; k < d; ++k) sum += g.At<double>(t, i, k) * h_out.At<double>(t, k);
      grad_h_post.At<double>(t, i) = sum;
      for (std::int64_t j = 0; args.grad_h_res.defined() && j < n; ++j) {
        double dot = 0;
        for (std::int64_t k = 0; k < d; ++k) dot += x.At<double>(t, j, k) * g.At<double>(t, i, k);
        grad_h_res.At<double>(t, j, i) = dot;
      }
    }
    for (std::int64_t k = 0; k < d; ++k) {
      double out = 0;
      for (std::int64_t i = 0; i < n; ++i) out += h_post.At<double>(t, i) * g.At<double>(t, i, k);
      grad_h_out.At<double>(t, k) = out;
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = args.h_res.defined() ? 0 : g.At<double>(t, j, k);
        for (std::int64_t i = 0; args.h_res.defined() && i < n; ++i) {
          sum += h_res.At<double>(t, j, i) * g.At<double>(t, i, k);
        }
        column[j] = sum;
      }
      for (std::int64_t j = 0; j < n; ++j) grad_x.At<double>(t, j, k) = column[j];
    }
  }
}

}  // namespace anabranch
