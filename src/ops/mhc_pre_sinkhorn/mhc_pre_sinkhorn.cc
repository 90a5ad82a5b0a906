// mhc_pre_sinkhorn: plan and run. The work is kernels/pre_forward, pre_backward and sinkhorn.
#include "src/ops/mhc_pre_sinkhorn/mhc_pre_sinkhorn.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/core/plan_impl.h"
#include "src/core/tokens.h"
#include "src/kernels/pre_backward.h"
#include "src/kernels/pre_forward.h"
#include "src/kernels/sinkhorn.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

// One cache [N, T, inner...] addressed by step, token and element of the token.
struct StepRows {
  StepRows(const TensorView& view, bool matrix)
      : base(static_cast<float*>(view.data)),
        step(view.defined() ? view.strides[0] : 0),
        token(view.defined() ? view.strides[1] : 0),
        row(matrix && view.defined() ? view.strides[2] : 0),
        column(view.defined() ? view.strides[matrix ? 3 : 2] : 0) {}
  float& At(std::int64_t k, std::int64_t t, std::int64_t i, std::int64_t j) const {
    return base[k * step + t * token + i * row + j * column];
  }
  float* base;
  std::int64_t step, token, row, column;
};

SinkhornParams ParamsOf(const MhcOptions& options, int n, std::int64_t num_iters) {
  SinkhornParams p{};
  p.n = n;
  p.num_iters = num_iters;
  p.eps = static_cast<float>(options.hc_eps);
  p.clamps = options.clamp_low != 0 || options.clamp_high != 0;
  p.clamp_low = static_cast<float>(options.clamp_low);
  p.clamp_high = static_cast<float>(options.clamp_high);
  return p;
}

// Sinkhorn of the tokens of a tile, kSinkhornLanes at a time.
class SinkhornStage final : public ResidualStage {
 public:
  SinkhornStage(const SinkhornParams& params, const TokenRows& h_res, const TokenRows& grad_h_res,
                const TensorView& sum_out, const TensorView& norm_out, bool backward, Target target)
      : params_(params),
        kernels_(GetSinkhornKernels(params.n, target)),
        h_res_(h_res),
        grad_h_res_(grad_h_res),
        cached_(sum_out.defined()),
        iterates_(cached_ || backward),
        sum_out_(sum_out, false),
        norm_out_(norm_out, true) {}

  std::size_t scratch_bytes() const override {
    const std::int64_t lanes = std::int64_t{2} * params_.n * params_.n * kSinkhornLanes;
    const std::int64_t kept = iterates_ ? SinkhornSums(params_) + SinkhornNorms(params_) : 0;
    return static_cast<std::size_t>(lanes + kept) * sizeof(float);
  }

  void Forward(std::int64_t token, int count, const float* z, std::byte* scratch) const override {
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

  void Backward(std::int64_t token, int count, const float* z, float* dz,
                std::byte* scratch) const override {
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

 private:
  struct Lanes {
    float* z;      // [n*n][16]
    float* other;  // [n*n][16]: h_res or its gradient
    float* sums;   // null when they are not wanted
    float* norms;
  };

  int Elements() const { return params_.n * params_.n; }

  // Transposes the logits; lanes without a token have logits of zero.
  template <class Body>
  void ForLanes(std::int64_t token, int count, const float* z, std::byte* scratch,
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

  // The kernel keeps the softmax itself where the caches have softmax + eps.
  void StoreIterates(std::int64_t first, int lanes, const Lanes& at) const {
    const int n = params_.n;
    for (std::int64_t step = 0; step < 2 * params_.num_iters; ++step) {
      const float* sums = at.sums + step * n * kSinkhornLanes;
      const float* norms = at.norms + step * Elements() * kSinkhornLanes;
      const float eps = step == 0 ? params_.eps : 0.0f;
      for (int l = 0; l < lanes; ++l) {
        for (int i = 0; i < n; ++i) {
          sum_out_.At(step, first + l, 0, i) = sums[i * kSinkhornLanes + l];
          for (int j = 0; j < n; ++j) {
            norm_out_.At(step, first + l, i, j) = norms[(i * n + j) * kSinkhornLanes + l] + eps;
          }
        }
      }
    }
  }

  void LoadIterates(std::int64_t first, int lanes, const Lanes& at) const {
    const int n = params_.n;
    for (std::int64_t step = 0; step < 2 * params_.num_iters; ++step) {
      float* sums = at.sums + step * n * kSinkhornLanes;
      float* norms = at.norms + step * Elements() * kSinkhornLanes;
      const float eps = step == 0 ? params_.eps : 0.0f;
      std::fill_n(sums, n * kSinkhornLanes, 1.0f);
      std::fill_n(norms, Elements() * kSinkhornLanes, 0.0f);
      for (int l = 0; l < lanes; ++l) {
        for (int i = 0; i < n; ++i) {
          sums[i * kSinkhornLanes + l] = sum_out_.At(step, first + l, 0, i);
          for (int j = 0; j < n; ++j) {
            norms[(i * n + j) * kSinkhornLanes + l] = norm_out_.At(step, first + l, i, j) - eps;
          }
        }
      }
    }
  }

  SinkhornParams params_;
  SinkhornKernels kernels_;
  TokenRows h_res_, grad_h_res_;
  bool cached_;
  bool iterates_;
  StepRows sum_out_, norm_out_;
};

PreShape ShapeOf(const TensorView& x) {
  const int leading = x.rank() - 2;
  PreShape s;
  s.tokens = CountTokens(x.sizes, leading);
  s.n = static_cast<int>(x.sizes[leading]);
  s.d = x.sizes[leading + 1];
  s.post = s.n;
  s.res = s.n * s.n;
  return s;
}

// inv_rms is [*] or [*, 1]: a token's first element either way.
TokenRows PerToken(const TensorView& view, const TensorView& x) {
  return view.defined() ? TokenRows(view, view.rank() - (x.rank() - 2)) : TokenRows();
}

TokenRows Matrices(const TensorView& view, const TensorView& x) {
  return TokenRows::Matrix(view, x.rank() - 2, x.sizes[x.rank() - 2]);
}

PreForwardTensors TensorsOf(const MhcPreSinkhornArgs& a) {
  PreForwardTensors t;
  t.x = a.x;
  t.phi = a.phi;
  t.alpha = a.alpha;
  t.bias = a.bias;
  t.h_in = a.h_in;
  t.h_post = TokenRows(a.h_post, 1);
  t.inv_rms = PerToken(a.inv_rms, a.x);
  t.h_mix = TokenRows(a.h_mix, 1);
  t.h_pre = TokenRows(a.h_pre, 1);
  t.norm_eps = static_cast<float>(a.options.norm_eps);
  t.hc_eps = static_cast<float>(a.options.hc_eps);
  t.post_multiplier = static_cast<float>(a.options.post_multiplier);
  return t;
}

PreBackwardTensors TensorsOf(const MhcPreSinkhornBackwardArgs& a) {
  PreBackwardTensors t;
  t.x = a.x;
  t.phi = a.phi;
  t.alpha = a.alpha;
  t.bias = a.bias;
  t.grad_h_in = a.grad_h_in;
  t.grad_h_post = TokenRows(a.grad_h_post, 1);
  t.inv_rms = PerToken(a.inv_rms, a.x);
  t.h_mix = TokenRows(a.h_mix, 1);
  t.h_pre = TokenRows(a.h_pre, 1);
  t.grad_x = a.grad_x;
  t.grad_phi = a.grad_phi;
  t.grad_alpha = a.grad_alpha;
  t.grad_bias = a.grad_bias;
  t.hc_eps = static_cast<float>(a.options.hc_eps);
  t.post_multiplier = static_cast<float>(a.options.post_multiplier);
  return t;
}

class ForwardPlan final : public PlanImpl {
 public:
  ForwardPlan(const MhcPreSinkhornArgs& a, Target target, const Context& context)
      : stage_(ParamsOf(a.options, ShapeOf(a.x).n, a.options.num_iters), Matrices(a.h_res, a.x),
               TokenRows(), a.sum_out, a.norm_out, false, target),
        forward_(ShapeOf(a.x), TensorsOf(a), &stage_, target, context, &info) {}
  void Run(std::byte* workspace, const Context& context) const override {
    forward_.Run(workspace, context);
  }

 private:
  SinkhornStage stage_;
  PreForward forward_;
};

class BackwardPlan final : public PlanImpl {
 public:
  BackwardPlan(const MhcPreSinkhornBackwardArgs& a, Target target, const Context& context)
      : stage_(ParamsOf(a.options, ShapeOf(a.x).n, IterationsOf(a)), TokenRows(),
               Matrices(a.grad_h_res, a.x), a.sum_out, a.norm_out, true, target),
        backward_(ShapeOf(a.x), TensorsOf(a), &stage_, target, context, &info) {}
  void Run(std::byte* workspace, const Context& context) const override {
    backward_.Run(workspace, context);
  }

 private:
  SinkhornStage stage_;
  PreBackward backward_;
};

}  // namespace

Status Prepare(const MhcPreSinkhornArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [&] {
    return Describe("x", args.x) + std::to_string(args.options.num_iters) + " iterations" +
           (args.sum_out.defined() ? " with all caches"
            : args.h_mix.defined() ? " with caches"
                                   : "");
  };
  return PreparePlan<ForwardPlan>("mhc_pre_sinkhorn", args, args.x, true, &MhcPreSinkhornReference,
                                  shapes, plan, context);
}

Status Prepare(const MhcPreSinkhornBackwardArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [&] {
    return Describe("x", args.x) + std::to_string(IterationsOf(args)) + " iterations" +
           (args.sum_out.defined() ? " cached" : " recomputed");
  };
  // No tokens still zero the parameter gradients: not an empty plan.
  return PreparePlan<BackwardPlan>("mhc_pre_sinkhorn_backward", args, args.x, false,
                                   &MhcPreSinkhornBackwardReference, shapes, plan, context);
}

}  // namespace anabranch
