#include "src/kernels/sinkhorn_stage.h"

#include <algorithm>

namespace anabranch {

SinkhornParams PreSinkhornParams(const MhcOptions& options, int n, std::int64_t num_iters) {
  SinkhornParams p{};
  p.n = n;
  p.num_iters = num_iters;
  p.eps = static_cast<float>(options.sinkhorn_eps);
  p.clamps = options.clamp_low != 0 || options.clamp_high != 0;
  p.clamp_low = static_cast<float>(options.clamp_low);
  p.clamp_high = static_cast<float>(options.clamp_high);
  return p;
}

PreShape PreSinkhornShape(const TensorView& x) {
  PreShape s = StreamShape(x);
  s.post = s.n;
  s.res = s.n * s.n;
  return s;
}

SinkhornStage::SinkhornStage(const SinkhornParams& params, const TokenRows& h_res,
                             const TokenRows& grad_h_res, const TensorView& sum_out,
                             const TensorView& norm_out, bool backward, Target target)
    : params_(params),
      kernels_(GetSinkhornKernels(params.n, target)),
      h_res_(h_res),
      grad_h_res_(grad_h_res),
      cached_(sum_out.defined()),
      iterates_(cached_ || backward),
      sum_out_(sum_out, 1),
      norm_out_(norm_out, 2) {}

std::size_t SinkhornStage::scratch_bytes() const {
  const std::int64_t lanes = std::int64_t{2} * params_.n * params_.n * kSinkhornLanes;
  const std::int64_t kept = iterates_ ? SinkhornSums(params_) + SinkhornNorms(params_) : 0;
  return static_cast<std::size_t>(lanes + kept) * sizeof(float);
}

// Transposes the logits; lanes without a token have logits of zero.
template <class Body>
void SinkhornStage::ForLanes(std::int64_t token, int count, const float* z, std::byte* scratch,
                             const Body& body) const {
  Lanes at{};
  at.z = reinterpret_cast<float*>(scratch);
  at.other = at.z + Elements() * kSinkhornLanes;
  at.sums = iterates_ ? at.other + Elements() * kSinkhornLanes : nullptr;
  at.norms = iterates_ ? at.sums + SinkhornSums(params_) : nullptr;
  for (int begin = 0; begin < count; begin += kSinkhornLanes) {
    const int lanes = std::min(kSinkhornLanes, count - begin);
    for (int k = 0; k < Elements(); ++k) {
      float* row = at.z + k * kSinkhornLanes;
      for (int l = 0; l < kSinkhornLanes; ++l) {
        row[l] = l < lanes ? z[(begin + l) * Elements() + k] : 0.0f;
      }
    }
    body(token + begin, lanes, at);
  }
}

void SinkhornStage::Forward(std::int64_t token, int count, const float* z,
                            std::byte* scratch) const {
  ForLanes(token, count, z, scratch, [&](std::int64_t first, int lanes, const Lanes& at) {
    kernels_.forward({params_, at.z, at.other, at.sums, at.norms});
    for (int l = 0; l < lanes; ++l) {
      for (int k = 0; k < Elements(); ++k) {
        h_res_.At<float>(first + l, k / params_.n, k % params_.n) =
            at.other[k * kSinkhornLanes + l];
      }
    }
    if (cached_) StoreIterates(first, lanes, at);
  });
}

void SinkhornStage::Backward(std::int64_t token, int count, const float* z, float* dz,
                             std::byte* scratch) const {
  ForLanes(token, count, z, scratch, [&](std::int64_t first, int lanes, const Lanes& at) {
    if (cached_) {
      LoadIterates(first, lanes, at);
    } else {
      kernels_.forward({params_, at.z, at.other, at.sums, at.norms});
    }
    std::fill_n(at.other, Elements() * kSinkhornLanes, 0.0f);
    for (int l = 0; l < lanes; ++l) {
      for (int k = 0; k < Elements(); ++k) {
        at.other[k * kSinkhornLanes + l] =
            grad_h_res_.At<float>(first + l, k / params_.n, k % params_.n);
      }
    }
    kernels_.backward({params_, at.z, at.other, at.sums, at.norms, at.other});
    for (int l = 0; l < lanes; ++l) {
      float* to = dz + (first - token + l) * Elements();
      for (int k = 0; k < Elements(); ++k) to[k] = at.other[k * kSinkhornLanes + l];
    }
  });
}

// The kernel keeps the softmax itself where the caches have softmax + eps.
void SinkhornStage::StoreIterates(std::int64_t first, int lanes, const Lanes& at) const {
  const int n = params_.n;
  for (std::int64_t step = 0; step < 2 * params_.num_iters; ++step) {
    const float* sums = at.sums + step * n * kSinkhornLanes;
    const float* norms = at.norms + step * Elements() * kSinkhornLanes;
    const float eps = step == 0 ? params_.eps : 0.0f;
    for (int l = 0; l < lanes; ++l) {
      for (int i = 0; i < n; ++i) {
        sum_out_.At<float>(step, first + l, i) = sums[i * kSinkhornLanes + l];
        for (int j = 0; j < n; ++j) {
          norm_out_.At<float>(step, first + l, i, j) =
              norms[(i * n + j) * kSinkhornLanes + l] + eps;
        }
      }
    }
  }
}

void SinkhornStage::LoadIterates(std::int64_t first, int lanes, const Lanes& at) const {
  const int n = params_.n;
  for (std::int64_t step = 0; step < 2 * params_.num_iters; ++step) {
    float* sums = at.sums + step * n * kSinkhornLanes;
    float* norms = at.norms + step * Elements() * kSinkhornLanes;
    const float eps = step == 0 ? params_.eps : 0.0f;
    std::fill_n(sums, n * kSinkhornLanes, 1.0f);
    std::fill_n(norms, Elements() * kSinkhornLanes, 0.0f);
    for (int l = 0; l < lanes; ++l) {
      for (int i = 0; i < n; ++i) {
        sums[i * kSinkhornLanes + l] = sum_out_.At<float>(step, first + l, i);
        for (int j = 0; j < n; ++j) {
          norms[(i * n + j) * kSinkhornLanes + l] =
              norm_out_.At<float>(step, first + l, i, j) - eps;
        }
      }
    }
  }
}

}  // namespace anabranch
