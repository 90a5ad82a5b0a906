// mhc_pre as it is defined. Every output is overwritten.
#include <array>
#include <cmath>

#include "src/core/sizes.h"
#include "src/core/tokens.h"
#include "src/ops/mhc_pre/mhc_pre.h"

namespace anabranch {
namespace {

double Sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

double At(const TensorView& t, std::int64_t i) {
  return static_cast<const double*>(t.data)[i * t.strides[0]];
}

double& At(const TensorView& t, std::int64_t i, std::int64_t j) {
  return static_cast<double*>(t.data)[i * t.strides[0] + j * t.strides[1]];
}

struct Shape {
  Shape(const TensorView& x, Residual residual)
      : leading(x.rank() - 2),
        tokens(CountTokens(x.sizes, leading)),
        n(x.sizes[leading]),
        d(x.sizes[leading + 1]),
        res(ResidualSize(residual, n)),
        rows(2 * n + res),
        columns(residual == Residual::kMatrix ? n : res) {}
  std::int64_t Segment(std::int64_t f) const { return f < n ? 0 : f < 2 * n ? 1 : 2; }
  int leading;
  std::int64_t tokens, n, d, res, rows, columns;
};

}  // namespace

void MhcPreReference(const MhcPreArgs& a) {
  const Shape s(a.x, a.residual);
  const TokenRows x(a.x, 2), h_in(a.h_in, 1), h_post(a.h_post, 1);
  const TokenRows h_res = TokenRows::Matrix(a.h_res, s.leading, s.columns);
  const TokenRows inv_rms(a.inv_rms, 0), h_mix(a.h_mix, 1), h_pre(a.h_pre, 1);
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    double squares = 0;
    for (std::int64_t i = 0; i < s.n; ++i) {
      for (std::int64_t k = 0; k < s.d; ++k)
        squares += x.At<double>(t, i, k) * x.At<double>(t, i, k);
    }
    const double mean = squares / static_cast<double>(s.n * s.d);
    const double r = 1 / std::sqrt(mean + a.options.norm_eps);
    if (inv_rms.defined()) inv_rms.At<double>(t) = r;
    double pre[16] = {};
    for (std::int64_t f = 0; f < s.rows; ++f) {
      double mix = 0;
      for (std::int64_t i = 0; i < s.n; ++i) {
        for (std::int64_t k = 0; k < s.d; ++k) {
          const double gamma = a.gamma.defined() ? At(a.gamma, i, k) : 1;
          mix += At(a.phi, f, i * s.d + k) * (x.At<double>(t, i, k) * gamma);
        }
      }
      const double z = mix * r * At(a.alpha, s.Segment(f)) + At(a.bias, f);
      if (h_mix.defined()) h_mix.At<double>(t, f) = mix;
      if (f < s.n) {
        pre[f] = Sigmoid(z) + a.options.pre_eps;
        if (h_pre.defined()) h_pre.At<double>(t, f) = pre[f];
      } else if (f < 2 * s.n) {
        h_post.At<double>(t, f - s.n) = a.options.post_multiplier * Sigmoid(z);
      } else {
        h_res.At<double>(t, (f - 2 * s.n) / s.columns, (f - 2 * s.n) % s.columns) = z;
      }
    }
    for (std::int64_t k = 0; k < s.d; ++k) {
      double sum = 0;
      for (std::int64_t i = 0; i < s.n; ++i) sum += pre[i] * x.At<double>(t, i, k);
      h_in.At<double>(t, k) = sum;
    }
  }
}

void MhcPreBackwardReference(const MhcPreBackwardArgs& a) {
  const Shape s(a.x, a.residual);
  const TokenRows x(a.x, 2), g(a.grad_h_in, 1), grad_h_post(a.grad_h_post, 1);
  const TokenRows grad_h_res = TokenRows::Matrix(a.grad_h_res, s.leading, s.columns);
  const TokenRows inv_rms(a.inv_rms, 0), h_mix(a.h_mix, 1), h_pre(a.h_pre, 1), h_post(a.h_post, 1);
  const TokenRows grad_x_post(a.grad_x_post, 2), grad_x(a.grad_x, 2);
  constexpr std::size_t kMostRows = 16 * 16 + 2 * 16;  // of the matrix form; 5! + 10 is less
  std::array<double, kMostRows> dz = {}, d_mix = {}, grad_bias = {};
  double grad_alpha[3] = {};
  for (std::int64_t f = 0; f < s.rows; ++f) {
    for (std::int64_t k = 0; k < s.n * s.d; ++k) At(a.grad_phi, f, k) = 0;
  }
  for (std::int64_t i = 0; a.gamma.defined() && i < s.n; ++i) {
    for (std::int64_t k = 0; k < s.d; ++k) At(a.grad_gamma, i, k) = 0;
  }
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const double r = inv_rms.At<double>(t);
    for (std::int64_t i = 0; i < s.n; ++i) {
      double dot = 0;
      for (std::int64_t k = 0; k < s.d; ++k) dot += g.At<double>(t, k) * x.At<double>(t, i, k);
      const double sigma = h_pre.At<double>(t, i) - a.options.pre_eps;
      dz[static_cast<std::size_t>(i)] = dot * sigma * (1 - sigma);
      const double post = h_post.At<double>(t, i);
      const double m = a.options.post_multiplier;
      dz[static_cast<std::size_t>(s.n + i)] =
          m == 0 ? 0 : grad_h_post.At<double>(t, i) * post * (1 - post / m);
    }
    for (std::int64_t f = 0; f < s.res; ++f) {
      dz[static_cast<std::size_t>(2 * s.n + f)] =
          grad_h_res.At<double>(t, f / s.columns, f % s.columns);
    }
    double d_r = 0;
    for (std::int64_t f = 0; f < s.rows; ++f) {
      const auto u = static_cast<std::size_t>(f);
      const double mix = h_mix.At<double>(t, f);
      const double dw = dz[u] * At(a.alpha, s.Segment(f));
      d_mix[u] = dw * r;
      d_r += dw * mix;
      grad_bias[u] += dz[u];
      grad_alpha[s.Segment(f)] += dz[u] * (mix * r);
    }
    const double rms = d_r * r * r * r / static_cast<double>(s.n * s.d);
    for (std::int64_t i = 0; i < s.n; ++i) {
      for (std::int64_t k = 0; k < s.d; ++k) {
        const double xk = x.At<double>(t, i, k);
        const double gamma = a.gamma.defined() ? At(a.gamma, i, k) : 1;
        double u = 0;
        for (std::int64_t f = 0; f < s.rows; ++f) {
          const double dm = d_mix[static_cast<std::size_t>(f)];
          u += dm * At(a.phi, f, i * s.d + k);
          At(a.grad_phi, f, i * s.d + k) += dm * (xk * gamma);
        }
        if (a.gamma.defined()) At(a.grad_gamma, i, k) += xk * u;
        double sum = g.At<double>(t, k) * h_pre.At<double>(t, i) + u * gamma - rms * xk;
        if (grad_x_post.defined()) sum += grad_x_post.At<double>(t, i, k);
        grad_x.At<double>(t, i, k) = sum;
      }
    }
  }
  for (std::int64_t f = 0; f < s.rows; ++f) {
    static_cast<double*>(a.grad_bias.data)[f * a.grad_bias.strides[0]] =
        grad_bias[static_cast<std::size_t>(f)];
  }
  for (std::int64_t k = 0; k < a.grad_alpha.sizes[0]; ++k) {
    static_cast<double*>(a.grad_alpha.data)[k * a.grad_alpha.strides[0]] = grad_alpha[k];
  }
}

}  // namespace anabranch
