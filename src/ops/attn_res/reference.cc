// block_attn_res as it is defined. Every output is overwritten.
#include "src/ops/attn_res/reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/core/tokens.h"
#include "src/kernels/attn_residual.h"
#include "src/ops/attn_res/attn_res.h"

namespace anabranch {

using attn_reference::Cache;
using attn_reference::List;
using attn_reference::SourceRows;
using attn_reference::Vector;
void BlockAttnResReference(const BlockAttnResArgs& a) {
  const int leading = a.blocks[0].rank() - 1;
  const std::int64_t tokens = CountTokens(a.blocks[0].sizes, leading);
  const std::int64_t d = a.blocks[0].sizes[leading];
  const SourceRows v = List(a.blocks, a.partial_block);
  const Vector w(a.proj_weight);
  const Vector gamma(a.enable_rmsnorm ? a.rmsnorm_gamma : TensorView());
  const TokenRows h(a.h, 1);
  const Cache rms_cache(a.rms_cache, leading), alpha_cache(a.alpha_cache, leading);
  double s[kMaxSources] = {}, rms[kMaxSources] = {};
  for (std::int64_t t = 0; t < tokens; ++t) {
    double largest = -INFINITY;
    for (std::size_t l = 0; l < v.size(); ++l) {
      double squares = 0, dot = 0;
      for (std::int64_t k = 0; k < d; ++k) {
        const double value = v[l].At<double>(t, k);
        squares += value * value;
        dot += gamma.Or1(k) * w[k] * value;
      }
      rms[l] = a.enable_rmsnorm ? std::sqrt(squares / static_cast<double>(d) + a.rmsnorm_eps) : 1;
      s[l] = a.scale * dot / rms[l];
      largest = std::max(largest, s[l]);
    }
    double sum = 0;
    for (std::size_t l = 0; l < v.size(); ++l) sum += std::exp(s[l] - largest);
    for (std::size_t l = 0; l < v.size(); ++l) {
      s[l] = std::exp(s[l] - largest) / sum;
      const auto column = static_cast<std::int64_t>(l);
      if (a.alpha_cache.defined()) alpha_cache.At(t, column) = s[l];
      if (a.rms_cache.defined()) rms_cache.At(t, column) = rms[l];
    }
    for (std::int64_t k = 0; k < d; ++k) {
      double mix = 0;
      for (std::size_t l = 0; l < v.size(); ++l) mix += s[l] * v[l].At<double>(t, k);
      h.At<double>(t, k) = mix;
    }
  }
}

void BlockAttnResBackwardReference(const BlockAttnResBackwardArgs& a) {
  const int leading = a.grad_h.rank() - 1;
  const std::int64_t tokens = CountTokens(a.grad_h.sizes, leading);
  const std::int64_t d = a.grad_h.sizes[leading];
  const SourceRows v = List(a.blocks, a.partial_block);
  const SourceRows dv = List(a.grad_blocks, a.grad_partial_block);
  const Vector w(a.proj_weight), dw(a.grad_proj_weight), dgamma(a.grad_rmsnorm_gamma);
  const Vector gamma(a.enable_rmsnorm ? a.rmsnorm_gamma : TensorView());
  const TokenRows dh(a.grad_h, 1);
  const Cache rms_cache(a.rms_cache, leading), alpha_cache(a.alpha_cache, leading);
  for (std::int64_t k = 0; k < d; ++k) {
    dw[k] = 0;
    if (a.grad_rmsnorm_gamma.defined()) dgamma[k] = 0;
  }
  double dot[kMaxSources] = {}, rms[kMaxSources] = {}, s[kMaxSources] = {};
  for (std::int64_t t = 0; t < tokens; ++t) {
    double delta = 0;
    for (std::size_t l = 0; l < v.size(); ++l) {
      const auto column = static_cast<std::int64_t>(l);
      double squares = 0;
      dot[l] = s[l] = 0;
      for (std::int64_t k = 0; k < d; ++k) {
        const double value = v[l].At<double>(t, k);
        squares += value * value;
        dot[l] += dh.At<double>(t, k) * value;
        s[l] += a.scale * gamma.Or1(k) * w[k] * value;
      }
      rms[l] = std::sqrt(squares / static_cast<double>(d) + a.rmsnorm_eps);
      if (a.rms_cache.defined()) rms[l] = rms_cache.At(t, column);
      if (!a.enable_rmsnorm) rms[l] = 1;
      s[l] /= rms[l];
      delta += alpha_cache.At(t, column) * dot[l];
    }
    for (std::size_t l = 0; l < v.size(); ++l) {
      const double alpha = alpha_cache.At(t, static_cast<std::int64_t>(l));
      const double scaled = alpha * (dot[l] - delta) / rms[l];
      for (std::int64_t k = 0; k < d; ++k) {
        const double value = v[l].At<double>(t, k);
        double direction = a.scale * w[k] * gamma.Or1(k);
        if (a.enable_rmsnorm) direction -= value * s[l] / (static_cast<double>(d) * rms[l]);
        dv[l].At<double>(t, k) = alpha * dh.At<double>(t, k) + scaled * direction;
        dw[k] += a.scale * gamma.Or1(k) * scaled * value;
        if (a.grad_rmsnorm_gamma.defined() && a.enable_rmsnorm) {
          dgamma[k] += a.scale * w[k] * scaled * value;
        }
      }
    }
  }
}

}  // namespace anabranch
