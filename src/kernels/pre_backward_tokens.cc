// What a token of the backward needs of its own: dot products, the gates' gradients, d_mix.
#include <algorithm>

#include "src/core/half.h"
#include "src/kernels/pre_backward.h"
#include "src/kernels/pre_backward_memory.h"

namespace anabranch {

void PreBackward::StreamDotsOf(std::int64_t token, std::byte* staging, float* dots) const {
  float* sums = dots + shape_.n;
  std::fill_n(sums, shape_.n * 16, 0.0f);
  const auto element = static_cast<std::int64_t>(x_.element);
  if (dense_) {
    kernels_.dots({x_.Token(token), x_.stride0, grad_h_in_.Token(token), shape_.n, shape_.d, sums});
  }
  for (std::int64_t begin = 0; !dense_ && begin < shape_.d; begin += kGradBlock) {
    const std::int64_t count = std::min<std::int64_t>(kGradBlock, shape_.d - begin);
    std::byte* g = staging + shape_.n * kGradBlock * element;
    for (int i = 0; i < shape_.n; ++i) {
      CopyStrided(staging + i * kGradBlock * element, 1,
                  x_.Token(token) + (i * x_.stride0 + begin * x_.stride1) * element, x_.stride1,
                  count, x_.element);
    }
    CopyStrided(g, 1, grad_h_in_.Token(token) + begin * grad_h_in_.stride1 * element,
                grad_h_in_.stride1, count, x_.element);
    kernels_.dots({staging, kGradBlock, g, shape_.n, count, sums});
  }
  kernels_.finish_sums(sums, shape_.n, dots);
}

// The logits as the forward had them: those of the gates and those of the residual part.
void PreBackward::Logits(std::int64_t token, const Memory& memory, float* gates, float* z) const {
  const int gated = shape_.n + shape_.post;
  const float inv_rms = t_.inv_rms.At<float>(token);
  for (int f = 0; f < shape_.rows(); ++f) {
    const float w = t_.h_mix.At<float>(token, f) * inv_rms;
    const float logit = w * memory.alpha[shape_.segment(f)] + memory.bias[f];
    (f < gated ? gates[f] : z[f - gated]) = logit;
  }
}

// dz holds the residual part's gradients already; `index` counts tokens in the step.
void PreBackward::TokenGradients(std::int64_t token, int index, const Memory& memory,
                                 const float* dots, const float* h_post, float* dz,
                                 float* partial) const {
  const int rows = shape_.rows();
  const int n = shape_.n;
  float* h_pre = memory.h_pre + index * n;
  for (int i = 0; i < n; ++i) {
    h_pre[i] = CleanNan(t_.h_pre.At<float>(token, i));
    // 1 - s as (1 - h_pre) + eps, of which the difference is exact near 1: a saturated gate keeps
    // its small gradient.
    const float s = h_pre[i] - t_.hc_eps;
    dz[i] = dots[i] * s * ((1.0f - h_pre[i]) + t_.hc_eps);
  }
  for (int i = 0; i < shape_.post; ++i) {
    // A multiplier of zero leaves nothing to differentiate.
    const float s = t_.post_multiplier == 0 ? 0.0f : h_post[i] / t_.post_multiplier;
    dz[n + i] = t_.grad_h_post.At<float>(token, i) * h_post[i] * (1.0f - s);
  }
  const float inv_rms = t_.inv_rms.At<float>(token);
  float* d_mix = memory.d_mix + index * rows;
  float d_r = 0;
  for (int f = 0; f < rows; ++f) {
    const float mix = t_.h_mix.At<float>(token, f);
    const float dw = dz[f] * memory.alpha[shape_.segment(f)];
    d_r += dw * mix;
    d_mix[f] = CleanNan(dw * inv_rms);
    partial[f] += dz[f];
    partial[rows + f] += dz[f] * (mix * inv_rms);
  }
  const auto k = static_cast<float>(shape_.n * shape_.d);
  memory.rms[index] = CleanNan(-(d_r * inv_rms * inv_rms * inv_rms / k));
}

// Tokens token .. token + count - 1, of which the first is number `begin` of the step.
void PreBackward::TokenItem(std::int64_t token, int begin, int count, const Memory& memory,
                            const Slot& slot) const {
  const int rows = shape_.rows();
  const int gated = shape_.n + shape_.post;
  const bool recompute = stage_ != nullptr;
  float* partial = memory.partial + begin / kGradItem * 2 * rows;
  std::fill_n(partial, 2 * rows, 0.0f);
  if (recompute) {
    for (int m = 0; m < count; ++m) {
      Logits(token + m, memory, slot.gates + m * gated, slot.z + m * shape_.res);
    }
    sigmoid_(slot.gates, std::int64_t{count} * gated);
    stage_->Backward(token, count, slot.z, slot.res, slot.scratch);
  }
  float h_post[16];
  for (int m = 0; m < count; ++m) {
    float* dz = slot.dz + m * rows;
    StreamDotsOf(token + m, slot.staging, slot.dots);
    for (int f = 0; f < shape_.res; ++f) {
      dz[gated + f] =
          recompute ? slot.res[m * shape_.res + f]
                    : t_.grad_h_res.At<float>(token + m, f / t_.res_columns, f % t_.res_columns);
    }
    for (int i = 0; i < shape_.post; ++i) {
      h_post[i] = recompute ? t_.post_multiplier * slot.gates[m * gated + shape_.n + i]
                            : t_.h_post.At<float>(token + m, i);
    }
    TokenGradients(token + m, begin + m, memory, slot.dots, h_post, dz, partial);
  }
}

}  // namespace anabranch
