// mhc_pre_sinkhorn as it is defined: mhc_pre's definition, then Sinkhorn. Outputs are overwritten.
#include <algorithm>
#include <array>
#include <cmath>

#include "src/core/tokens.h"
#include "src/ops/mhc_pre_sinkhorn/mhc_pre_sinkhorn.h"
#include "src/ops/mhc_references.h"
#include "src/ops/mhc_spec.h"

namespace anabranch {
namespace {

using Matrix = std::array<double, specs::kMaxPreStreams * specs::kMaxPreStreams>;

struct Sinkhorn {
  Sinkhorn(const MhcOptions& given, std::int64_t streams, std::int64_t num_iters, double* scratch)
      : options(given), n(streams), steps(2 * num_iters), sums(scratch), norms(sums + steps * n) {}
  static std::int64_t Doubles(std::int64_t streams, std::int64_t num_iters) {
    return 2 * num_iters * (streams + streams * streams);
  }

  double& Sum(std::int64_t k, std::int64_t i) { return sums[k * n + i]; }
  double& Norm(std::int64_t k, std::int64_t i, std::int64_t j) {
    return norms[(k * n + i) * n + j];
  }
  bool Clamps() const { return options.clamp_low != 0 || options.clamp_high != 0; }
  bool Outside(double z) const {
    return Clamps() && (z < options.clamp_low || z > options.clamp_high);
  }

  // norms[0] = softmax + eps, sums[0] = sum of exp(z - max); odd steps divide columns.
  void Forward(const double* z) {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto logit = [&](std::int64_t j) {
        const double v = z[i * n + j];
        return Clamps() ? std::min(std::max(v, options.clamp_low), options.clamp_high) : v;
      };
      double top = logit(0);
      for (std::int64_t j = 1; j < n; ++j) top = std::max(top, logit(j));
      Sum(0, i) = 0;
      for (std::int64_t j = 0; j < n; ++j) Sum(0, i) += std::exp(logit(j) - top);
      for (std::int64_t j = 0; j < n; ++j) {
        Norm(0, i, j) = std::exp(logit(j) - top) / Sum(0, i) + options.sinkhorn_eps;
      }
    }
    for (std::int64_t k = 1; k < steps; ++k) {
      for (std::int64_t r = 0; r < n; ++r) {
        Sum(k, r) = options.sinkhorn_eps;
        for (std::int64_t q = 0; q < n; ++q)
          Sum(k, r) += k % 2 == 1 ? Norm(k - 1, q, r) : Norm(k - 1, r, q);
      }
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          Norm(k, i, j) = Norm(k - 1, i, j) / Sum(k, k % 2 == 1 ? j : i);
        }
      }
    }
  }

  // g: gradient of the result in, of z out.
  void Backward(const double* z, double* g) {
    const auto at = [&](std::int64_t i, std::int64_t j) -> double& {
      return g[static_cast<std::size_t>(i * n + j)];
    };
    for (std::int64_t k = steps - 1; k >= 1; --k) {
      for (std::int64_t r = 0; r < n; ++r) {
        const bool columns = k % 2 == 1;
        double dot = 0;
        for (std::int64_t q = 0; q < n; ++q) {
          dot += columns ? at(q, r) * Norm(k, q, r) : at(r, q) * Norm(k, r, q);
        }
        for (std::int64_t q = 0; q < n; ++q) {
          double& v = columns ? at(q, r) : at(r, q);
          v = (v - dot) / Sum(k, r);
        }
      }
    }
    for (std::int64_t i = 0; i < n; ++i) {
      double dot = 0;
      for (std::int64_t j = 0; j < n; ++j) dot += at(i, j) * (Norm(0, i, j) - options.sinkhorn_eps);
      for (std::int64_t j = 0; j < n; ++j) {
        at(i, j) =
            Outside(z[i * n + j]) ? 0 : (Norm(0, i, j) - options.sinkhorn_eps) * (at(i, j) - dot);
      }
    }
  }

  MhcOptions options;
  std::int64_t n, steps;
  double* sums;
  double* norms;
};

// f(double& cache element, double& own element) for everything kept of a token.
template <class F>
void ForIterates(Sinkhorn& s, const StepRows& sum_out, const StepRows& norm_out, std::int64_t t,
                 const F& f) {
  for (std::int64_t k = 0; sum_out.defined() && k < s.steps; ++k) {
    for (std::int64_t i = 0; i < s.n; ++i) {
      f(sum_out.At<double>(k, t, i), s.Sum(k, i));
      for (std::int64_t j = 0; j < s.n; ++j) {
        f(norm_out.At<double>(k, t, i, j), s.Norm(k, i, j));
      }
    }
  }
}

// An inv_rms [*, 1] as [*].
TensorView PerToken(TensorView view, int leading) {
  view.sizes.rank = std::min(view.sizes.rank, leading);
  view.strides.rank = std::min(view.strides.rank, leading);
  return view;
}

Dims TokensAnd(const TensorView& x, std::initializer_list<std::int64_t> inner) {
  Dims dims;
  for (int i = 0; i < x.rank() - 2; ++i) dims.push_back(x.sizes[i]);
  for (std::int64_t v : inner) dims.push_back(v);
  return dims;
}

}  // namespace

std::int64_t MhcPreSinkhornScratch(const MhcPreSinkhornArgs& a) {
  return Sinkhorn::Doubles(a.x.sizes[a.x.rank() - 2], a.options.num_iters);
}

std::int64_t MhcPreSinkhornBackwardScratch(const MhcPreSinkhornBackwardArgs& a) {
  const std::int64_t n = a.x.sizes[a.x.rank() - 2];
  return Sinkhorn::Doubles(n, IterationsOf(a)) +
         CountTokens(a.x.sizes, a.x.rank() - 2) * (n + n * n);
}

void MhcPreSinkhornReference(const MhcPreSinkhornArgs& a, double* scratch) {
  const int leading = a.x.rank() - 2;
  const std::int64_t n = a.x.sizes[leading];
  const std::int64_t tokens = CountTokens(a.x.sizes, leading);
  MhcPreArgs pre;
  pre.x = a.x;
  pre.phi = a.phi;
  pre.alpha = a.alpha;
  pre.bias = a.bias;
  pre.h_in = a.h_in;
  pre.h_post = a.h_post;
  pre.h_res = a.h_res;  // the logits, which the result replaces token by token
  pre.inv_rms = PerToken(a.inv_rms, leading);
  pre.h_mix = a.h_mix;
  pre.h_pre = a.h_pre;
  pre.options = a.options;
  MhcPreReference(pre);
  const TokenRows h_res = TokenRows::Matrix(a.h_res, leading, n);
  const StepRows sum_out(a.sum_out, 1), norm_out(a.norm_out, 2);
  Sinkhorn s(a.options, n, a.options.num_iters, scratch);
  Matrix z = {};
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t k = 0; k < n * n; ++k) z[k] = h_res.At<double>(t, k / n, k % n);
    s.Forward(z.data());
    for (std::int64_t k = 0; k < n * n; ++k) {
      h_res.At<double>(t, k / n, k % n) = s.Norm(s.steps - 1, k / n, k % n);
    }
    ForIterates(s, sum_out, norm_out, t, [](double& cache, double& own) { cache = own; });
  }
}

void MhcPreSinkhornBackwardReference(const MhcPreSinkhornBackwardArgs& a, double* scratch) {
  const int leading = a.x.rank() - 2;
  const std::int64_t n = a.x.sizes[leading];
  const std::int64_t tokens = CountTokens(a.x.sizes, leading);
  const TokenRows h_mix(a.h_mix, 1);
  const TokenRows inv_rms(PerToken(a.inv_rms, leading), 0);
  const TokenRows grad_h_res = TokenRows::Matrix(a.grad_h_res, leading, n);
  const StepRows sum_out(a.sum_out, 1), norm_out(a.norm_out, 2);
  const auto logit = [&](std::int64_t t, std::int64_t f, int segment) {
    return h_mix.At<double>(t, f) * inv_rms.At<double>(t) *
               static_cast<const double*>(a.alpha.data)[segment * a.alpha.strides[0]] +
           static_cast<const double*>(a.bias.data)[f * a.bias.strides[0]];
  };
  double* h_post = scratch;          // [tokens][n]
  double* dz = h_post + tokens * n;  // [tokens][n * n]
  Matrix z = {};
  Sinkhorn s(a.options, n, IterationsOf(a), dz + tokens * n * n);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < n; ++i) {
      h_post[t * n + i] = a.options.post_multiplier / (1 + std::exp(-logit(t, n + i, 1)));
    }
    for (std::int64_t k = 0; k < n * n; ++k) {
      z[k] = logit(t, 2 * n + k, 2);
      dz[(t * n * n) + k] = grad_h_res.At<double>(t, k / n, k % n);
    }
    s.Forward(z.data());
    ForIterates(s, sum_out, norm_out, t, [](double& cache, double& own) { own = cache; });
    s.Backward(z.data(), dz + t * n * n);
  }
  MhcPreBackwardArgs pre;
  pre.x = a.x;
  pre.phi = a.phi;
  pre.alpha = a.alpha;
  pre.grad_h_in = a.grad_h_in;
  pre.grad_h_post = a.grad_h_post;
  pre.grad_h_res = TensorView(dz, DType::kFloat64, TokensAnd(a.x, {n * n}));
  pre.inv_rms = PerToken(a.inv_rms, leading);
  pre.h_mix = a.h_mix;
  pre.h_pre = a.h_pre;
  pre.h_post = TensorView(h_post, DType::kFloat64, TokensAnd(a.x, {n}));
  pre.grad_x = a.grad_x;
  pre.grad_phi = a.grad_phi;
  pre.grad_alpha = a.grad_alpha;
  pre.grad_bias = a.grad_bias;
  pre.options = a.options;
  MhcPreBackwardReference(pre);
}

}  // namespace anabranch
