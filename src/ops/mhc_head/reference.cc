// mhc_head as it is defined. Every output is overwritten.
#include <cmath>

#include "src/core/tokens.h"
#include "src/ops/mhc_head/mhc_head.h"

namespace anabranch {
namespace {

double& At(const TensorView& t, std::int64_t i) {
  return static_cast<double*>(t.data)[i * t.strides[0]];
}

double& At(const TensorView& t, std::int64_t i, std::int64_t j) {
  return static_cast<double*>(t.data)[i * t.strides[0] + j * t.strides[1]];
}

}  // namespace

void MhcHeadReference(const MhcHeadArgs& a) {
  const int leading = a.x.rank() - 2;
  const std::int64_t tokens = CountTokens(a.x.sizes, leading);
  const std::int64_t n = a.x.sizes[leading];
  const std::int64_t d = a.x.sizes[leading + 1];
  const TokenRows x(a.x, 2), y(a.y, 1), inv_rms(a.inv_rms, 0), h_mix(a.h_mix, 1), w(a.w, 1);
  for (std::int64_t t = 0; t < tokens; ++t) {
    double squares = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t k = 0; k < d; ++k) squares += x.At<double>(t, i, k) * x.At<double>(t, i, k);
    }
    const double r = 1 / std::sqrt(squares / static_cast<double>(n * d) + a.options.norm_eps);
    if (inv_rms.defined()) inv_rms.At<double>(t) = r;
    double weights[16];
    for (std::int64_t f = 0; f < n; ++f) {
      double mix = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t k = 0; k < d; ++k) mix += At(a.fn, f, i * d + k) * x.At<double>(t, i, k);
      }
      const double z = r * mix * At(a.scale, 0) + At(a.base, f);
      weights[f] = 1 / (1 + std::exp(-z)) + a.options.pre_eps;
      if (h_mix.defined()) h_mix.At<double>(t, f) = mix;
      if (w.defined()) w.At<double>(t, f) = weights[f];
    }
    for (std::int64_t k = 0; k < d; ++k) {
      double sum = 0;
      for (std::int64_t i = 0; i < n; ++i) sum += weights[i] * x.At<double>(t, i, k);
      y.At<double>(t, k) = sum;
    }
  }
}

void MhcHeadBackwardReference(const MhcHeadBackwardArgs& a) {
  const int leading = a.x.rank() - 2;
  const std::int64_t tokens = CountTokens(a.x.sizes, leading);
  const std::int64_t n = a.x.sizes[leading];
  const std::int64_t d = a.x.sizes[leading + 1];
  const TokenRows x(a.x, 2), g(a.grad_y, 1), inv_rms(a.inv_rms, 0), h_mix(a.h_mix, 1), w(a.w, 1);
  const TokenRows grad_x(a.grad_x, 2);
  At(a.grad_scale, 0) = 0;
  for (std::int64_t f = 0; f < n; ++f) {
    At(a.grad_base, f) = 0;
    for (std::int64_t k = 0; k < n * d; ++k) At(a.grad_fn, f, k) = 0;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double r = inv_rms.At<double>(t);
    double d_mix[16];
    double d_r = 0;
    for (std::int64_t f = 0; f < n; ++f) {
      double dot = 0;
      for (std::int64_t k = 0; k < d; ++k) dot += g.At<double>(t, k) * x.At<double>(t, f, k);
      const double sigma = w.At<double>(t, f) - a.options.pre_eps;
      const double dz = dot * sigma * (1 - sigma);
      const double dw = dz * At(a.scale, 0);
      d_mix[f] = dw * r;
      d_r += dw * h_mix.At<double>(t, f);
      At(a.grad_base, f) += dz;
      At(a.grad_scale, 0) += dz * (h_mix.At<double>(t, f) * r);
    }
    const double rms = d_r * r * r * r / static_cast<double>(n * d);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t k = 0; k < d; ++k) {
        const double xk = x.At<double>(t, i, k);
        double sum = g.At<double>(t, k) * w.At<double>(t, i) - rms * xk;
        for (std::int64_t f = 0; f < n; ++f) {
          sum += d_mix[f] * At(a.fn, f, i * d + k);
          At(a.grad_fn, f, i * d + k) += d_mix[f] * xk;
        }
        grad_x.At<double>(t, i, k) = sum;
      }
    }
  }
}

}  // namespace anabranch
