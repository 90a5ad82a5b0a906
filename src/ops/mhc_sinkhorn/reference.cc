// mhc_sinkhorn as it is defined. Every output is overwritten.
#include <algorithm>
#include <array>
#include <cmath>

#include "src/ops/mhc_sinkhorn/mhc_sinkhorn.h"

namespace anabranch {
namespace {

using Matrix = std::array<double, kMaxSinkhornStreams * kMaxSinkhornStreams>;

// One token: all iterates. sums [2*iters][n], norms [2*iters][n*n]; norms[0] is softmax + eps.
struct Iterates {
  Iterates(std::int64_t streams, std::int64_t iterations, double* scratch)
      : n(streams), iters(iterations), sums(scratch), norms(sums + 2 * iters * n) {}
  static std::int64_t Doubles(std::int64_t streams, std::int64_t iterations) {
    return 2 * iterations * (streams + streams * streams);
  }

  double* Norm(std::int64_t step) { return norms + step * n * n; }
  double* Sum(std::int64_t step) { return sums + step * n; }

  // z: n*n logits, clamped already.
  void Compute(const double* z, double eps) {
    for (std::int64_t i = 0; i < n; ++i) {
      const double top = *std::max_element(z + i * n, z + i * n + n);
      double sum = 0;
      for (std::int64_t j = 0; j < n; ++j) sum += softmax[i * n + j] = std::exp(z[i * n + j] - top);
      Sum(0)[i] = sum;
      for (std::int64_t j = 0; j < n; ++j) {
        softmax[i * n + j] /= sum;
        Norm(0)[i * n + j] = softmax[i * n + j] + eps;
      }
    }
    for (std::int64_t k = 1; k < 2 * iters; ++k) {
      const bool column = k % 2 == 1;
      for (std::int64_t r = 0; r < n; ++r) {
        double sum = 0;
        for (std::int64_t e = 0; e < n; ++e) sum += Norm(k - 1)[column ? e * n + r : r * n + e];
        Sum(k)[r] = sum + eps;
        for (std::int64_t e = 0; e < n; ++e) {
          const std::int64_t at = column ? e * n + r : r * n + e;
          Norm(k)[at] = Norm(k - 1)[at] / Sum(k)[r];
        }
      }
    }
  }

  // g: gradient of the last iterate; becomes that of the logits before the clamp.
  void Back(double* g) {
    for (std::int64_t k = 2 * iters - 1; k >= 1; --k) {
      const bool column = k % 2 == 1;
      for (std::int64_t r = 0; r < n; ++r) {
        double dot = 0;
        for (std::int64_t e = 0; e < n; ++e) {
          const std::int64_t at = column ? e * n + r : r * n + e;
          dot += g[at] * Norm(k)[at];
        }
        for (std::int64_t e = 0; e < n; ++e) {
          double& value = g[column ? e * n + r : r * n + e];
          value = (value - dot) / Sum(k)[r];
        }
      }
    }
    for (std::int64_t i = 0; i < n; ++i) {
      double dot = 0;
      for (std::int64_t j = 0; j < n; ++j) dot += g[i * n + j] * softmax[i * n + j];
      for (std::int64_t j = 0; j < n; ++j) g[i * n + j] = softmax[i * n + j] * (g[i * n + j] - dot);
    }
  }

  std::int64_t n, iters;
  double* sums;
  double* norms;
  Matrix softmax = {};
};

double Clamped(const MhcOptions& o, double z) {
  if (!Clamps(o)) return z;
  return z < o.clamp_low ? o.clamp_low : z > o.clamp_high ? o.clamp_high : z;
}

}  // namespace

std::int64_t MhcSinkhornScratch(const MhcSinkhornArgs& args) {
  return Iterates::Doubles(SinkhornShape(args.logits, args.n).n, args.options.num_iters);
}

std::int64_t MhcSinkhornBackwardScratch(const MhcSinkhornBackwardArgs& args) {
  return Iterates::Doubles(SinkhornShape(args.grad_h_res, args.n).n, args.options.num_iters);
}

void MhcSinkhornReference(const MhcSinkhornArgs& args, double* scratch) {
  const SinkhornShape shape(args.logits, args.n);
  const std::int64_t n = shape.n;
  const TokenRows logits = TokenRows::Matrix(args.logits, shape.leading, n);
  const TokenRows h_res = TokenRows::Matrix(args.h_res, shape.leading, n);
  const StepRows sum_out(args.sum_out, 1), norm_out(args.norm_out, 2);
  const std::int64_t steps = 2 * args.options.num_iters;
  Iterates it(n, args.options.num_iters, scratch);
  Matrix z = {};
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    for (std::int64_t e = 0; e < n * n; ++e) {
      z[e] = Clamped(args.options, logits.At<double>(t, e / n, e % n));
    }
    it.Compute(z.data(), args.options.sinkhorn_eps);
    for (std::int64_t e = 0; e < n * n; ++e) {
      h_res.At<double>(t, e / n, e % n) = it.Norm(steps - 1)[e];
    }
    for (std::int64_t k = 0; sum_out.defined() && k < steps; ++k) {
      const bool plain = k == 0 && args.softmax_cache_without_eps;
      for (std::int64_t i = 0; i < n; ++i) {
        sum_out.At<double>(k, t, i) = it.Sum(k)[i];
        for (std::int64_t j = 0; j < n; ++j) {
          norm_out.At<double>(k, t, i, j) = plain ? it.softmax[i * n + j] : it.Norm(k)[i * n + j];
        }
      }
      for (std::int64_t p = n; p < n + args.row_padding; ++p) {
        sum_out.At<double>(k, t, p) = 0;
        for (std::int64_t i = 0; i < n; ++i) norm_out.At<double>(k, t, i, p) = 0;
      }
    }
  }
}

void MhcSinkhornBackwardReference(const MhcSinkhornBackwardArgs& args, double* scratch) {
  const SinkhornShape shape(args.grad_h_res, args.n);
  const std::int64_t n = shape.n;
  const MhcOptions& o = args.options;
  const TokenRows grad = TokenRows::Matrix(args.grad_h_res, shape.leading, n);
  const TokenRows logits = TokenRows::Matrix(args.logits, shape.leading, n);
  const TokenRows grad_logits = TokenRows::Matrix(args.grad_logits, shape.leading, n);
  const StepRows sum_out(args.sum_out, 1), norm_out(args.norm_out, 2);
  Iterates it(n, o.num_iters, scratch);
  Matrix z = {}, g = {};
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    for (std::int64_t e = 0; e < n * n; ++e) {
      g[e] = grad.At<double>(t, e / n, e % n);
      if (logits.defined()) z[e] = Clamped(o, logits.At<double>(t, e / n, e % n));
    }
    if (sum_out.defined()) {
      for (std::int64_t k = 0; k < 2 * o.num_iters; ++k) {
        for (std::int64_t i = 0; i < n; ++i) {
          it.Sum(k)[i] = sum_out.At<double>(k, t, i);
          for (std::int64_t j = 0; j < n; ++j) {
            it.Norm(k)[i * n + j] = norm_out.At<double>(k, t, i, j);
          }
        }
      }
      for (std::int64_t e = 0; e < n * n; ++e) {
        it.softmax[e] = it.Norm(0)[e] - (args.softmax_cache_without_eps ? 0 : o.sinkhorn_eps);
      }
    } else {
      it.Compute(z.data(), o.sinkhorn_eps);
    }
    it.Back(g.data());
    for (std::int64_t e = 0; e < n * n; ++e) {
      const double raw = logits.defined() ? logits.At<double>(t, e / n, e % n) : 0;
      const bool outside = Clamps(o) && (raw < o.clamp_low || raw > o.clamp_high);
      grad_logits.At<double>(t, e / n, e % n) = outside ? 0 : g[e];
    }
  }
}

}  // namespace anabranch
