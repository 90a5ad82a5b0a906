// mhc_sinkhorn: plan and run, 16 tokens at a time. The arithmetic is kernels/sinkhorn.
#include "src/ops/mhc_sinkhorn/mhc_sinkhorn.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/core/half.h"
#include "src/core/parallel.h"
#include "src/core/plan_impl.h"
#include "src/kernels/sinkhorn.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

constexpr std::int64_t kLanesPerCall = kSinkhornLanes;

SinkhornParams ParamsOf(const SinkhornShape& shape, const MhcOptions& o) {
  return {static_cast<int>(shape.n),          o.num_iters,
          static_cast<float>(o.sinkhorn_eps), Clamps(o),
          static_cast<float>(o.clamp_low),    static_cast<float>(o.clamp_high)};
}

// `count` tokens of strided matrices to and from one token a lane; idle lanes get zeros.
void Gather(const TokenRows& from, std::int64_t token, std::int64_t count, std::int64_t n,
            float* to) {
  if (count < kLanesPerCall) std::fill_n(to, n * n * kLanesPerCall, 0.0f);
  for (std::int64_t l = 0; l < count; ++l) {
    const auto* row = reinterpret_cast<const float*>(from.Token(token + l));
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        to[(i * n + j) * kLanesPerCall + l] = CleanNan(row[i * from.stride0 + j * from.stride1]);
      }
    }
  }
}

void Scatter(const float* from, std::int64_t token, std::int64_t count, std::int64_t n,
             const TokenRows& to) {
  for (std::int64_t l = 0; l < count; ++l) {
    auto* row = reinterpret_cast<float*>(to.Token(token + l));
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        row[i * to.stride0 + j * to.stride1] = from[(i * n + j) * kLanesPerCall + l];
      }
    }
  }
}

// The memory of one slot: matrices, gradients, and all iterates of 16 tokens.
struct Scratch {
  Scratch(std::byte* memory, const SinkhornParams& p)
      : z(reinterpret_cast<float*>(memory)),
        grad(z + Matrix(p)),
        sums(grad + Matrix(p)),
        norms(sums + SinkhornSums(p)) {}
  static std::int64_t Matrix(const SinkhornParams& p) { return p.n * p.n * kLanesPerCall; }
  static std::size_t Bytes(const SinkhornParams& p, bool iterates) {
    const std::int64_t floats = 2 * Matrix(p) + (iterates ? SinkhornSums(p) + SinkhornNorms(p) : 0);
    return AlignUp(static_cast<std::size_t>(floats) * sizeof(float));
  }
  float *z, *grad, *sums, *norms;
};

class SinkhornPlan : public PlanImpl {
 public:
  SinkhornPlan(const SinkhornShape& shape, const MhcOptions& options, bool iterates, double passes,
               Target target, const Context& context)
      : shape_(shape),
        params_(ParamsOf(shape, options)),
        kernels_(GetSinkhornKernels(params_.n, target)),
        slot_bytes_(Scratch::Bytes(params_, iterates)) {
    // A normalisation costs about as much time as moving a quarter of the
    // matrix through memory; thread hand-offs are weighed in bytes.
    tile_ = LaneTile(shape.tokens, kLanesPerCall, context.threads());
    info.work_items = CeilDiv(shape.tokens, tile_);
    const double matrix_bytes = static_cast<double>(shape.n * shape.n) * sizeof(float);
    const double steps = 2.0 * static_cast<double>(options.num_iters) * passes;
    info.threads =
        ThreadsForBytes(context, info.work_items,
                        static_cast<double>(shape.tokens) * matrix_bytes * (2 + steps / 4));
    info.tile = tile_;
    info.kernel = kernels_.name;
    info.target = kernels_.target;
    info.workspace_bytes = slot_bytes_ * static_cast<std::size_t>(info.threads);
  }

  void Run(std::byte* workspace, const Context& context) const override {
    ForEachItem(context, info.threads, info.work_items, [&](int slot, std::int64_t item) {
      const Scratch scratch(workspace + slot_bytes_ * static_cast<std::size_t>(slot), params_);
      const std::int64_t end = std::min(shape_.tokens, (item + 1) * tile_);
      for (std::int64_t t = item * tile_; t < end; t += kLanesPerCall) {
        RunBlock(t, std::min(kLanesPerCall, end - t), scratch);
      }
    });
  }

 protected:
  virtual void RunBlock(std::int64_t token, std::int64_t count, const Scratch& scratch) const = 0;

  SinkhornShape shape_;
  SinkhornParams params_;
  SinkhornKernels kernels_;
  std::size_t slot_bytes_;
  std::int64_t tile_ = 1;
};

class ForwardPlan : public SinkhornPlan {
 public:
  ForwardPlan(const MhcSinkhornArgs& a, Target target, const Context& context)
      : SinkhornPlan(SinkhornShape(a.logits, a.n), a.options, a.sum_out.defined(), 1, target,
                     context),
        logits_(TokenRows::Matrix(a.logits, shape_.leading, shape_.n)),
        h_res_(TokenRows::Matrix(a.h_res, shape_.leading, shape_.n)),
        sum_out_(a.sum_out, 1),
        norm_out_(a.norm_out, 2),
        padding_(a.row_padding),
        cache_eps_(a.softmax_cache_without_eps ? 0 : params_.eps) {}

 private:
  void RunBlock(std::int64_t token, std::int64_t count, const Scratch& s) const override {
    const bool caches = sum_out_.defined();
    Gather(logits_, token, count, shape_.n, s.z);
    kernels_.forward({params_, s.z, s.grad, caches ? s.sums : nullptr, caches ? s.norms : nullptr});
    Scatter(s.grad, token, count, shape_.n, h_res_);
    for (std::int64_t l = 0; caches && l < count; ++l) StoreCaches(token + l, s, l);
  }

  void StoreCaches(std::int64_t token, const Scratch& s, std::int64_t lane) const {
    const std::int64_t n = shape_.n;
    for (std::int64_t k = 0; k < 2 * params_.num_iters; ++k) {
      for (std::int64_t i = 0; i < n; ++i) {
        sum_out_.At<float>(k, token, i) = s.sums[(k * n + i) * kLanesPerCall + lane];
        for (std::int64_t j = 0; j < n; ++j) {
          const float value = s.norms[((k * n + i) * n + j) * kLanesPerCall + lane];
          norm_out_.At<float>(k, token, i, j) = k == 0 ? value + cache_eps_ : value;
        }
      }
      for (std::int64_t p = n; p < n + padding_; ++p) {
        sum_out_.At<float>(k, token, p) = 0;
        for (std::int64_t i = 0; i < n; ++i) norm_out_.At<float>(k, token, i, p) = 0;
      }
    }
  }

  TokenRows logits_, h_res_;
  StepRows sum_out_, norm_out_;
  std::int64_t padding_;
  float cache_eps_;
};

class BackwardPlan : public SinkhornPlan {
 public:
  BackwardPlan(const MhcSinkhornBackwardArgs& a, Target target, const Context& context)
      : SinkhornPlan(SinkhornShape(a.grad_h_res, a.n), a.options, true, 3, target, context),
        grad_h_res_(TokenRows::Matrix(a.grad_h_res, shape_.leading, shape_.n)),
        logits_(TokenRows::Matrix(a.logits, shape_.leading, shape_.n)),
        grad_logits_(TokenRows::Matrix(a.grad_logits, shape_.leading, shape_.n)),
        sum_out_(a.sum_out, 1),
        norm_out_(a.norm_out, 2),
        cache_eps_(a.softmax_cache_without_eps ? 0 : params_.eps) {}

 private:
  void RunBlock(std::int64_t token, std::int64_t count, const Scratch& s) const override {
    if (logits_.defined()) Gather(logits_, token, count, shape_.n, s.z);
    if (sum_out_.defined()) {
      LoadCaches(token, count, s);
    } else {
      kernels_.forward({params_, s.z, s.grad, s.sums, s.norms});
    }
    Gather(grad_h_res_, token, count, shape_.n, s.grad);
    kernels_.backward({params_, s.z, s.grad, s.sums, s.norms, s.grad});
    Scatter(s.grad, token, count, shape_.n, grad_logits_);
  }

  // Idle lanes repeat the first token, so that they hold ordinary numbers.
  void LoadCaches(std::int64_t token, std::int64_t count, const Scratch& s) const {
    const std::int64_t n = shape_.n;
    for (std::int64_t k = 0; k < 2 * params_.num_iters; ++k) {
      for (std::int64_t l = 0; l < kLanesPerCall; ++l) {
        const std::int64_t from = token + (l < count ? l : 0);
        for (std::int64_t i = 0; i < n; ++i) {
          s.sums[(k * n + i) * kLanesPerCall + l] = sum_out_.At<float>(k, from, i);
          for (std::int64_t j = 0; j < n; ++j) {
            const float value = norm_out_.At<float>(k, from, i, j);
            s.norms[((k * n + i) * n + j) * kLanesPerCall + l] =
                k == 0 ? value - cache_eps_ : value;
          }
        }
      }
    }
  }

  TokenRows grad_h_res_, logits_, grad_logits_;
  StepRows sum_out_, norm_out_;
  float cache_eps_;
};

}  // namespace

Status Prepare(const MhcSinkhornArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [logits = args.logits] { return Describe("logits", logits); };
  return PreparePlan<ForwardPlan>("mhc_sinkhorn", args, args.logits, true,
                                  {&MhcSinkhornReference, &MhcSinkhornScratch}, shapes, plan,
                                  context);
}

Status Prepare(const MhcSinkhornBackwardArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [grad = args.grad_h_res] { return Describe("grad_h_res", grad); };
  return PreparePlan<BackwardPlan>("mhc_sinkhorn_backward", args, args.grad_h_res, true,
                                   {&MhcSinkhornBackwardReference, &MhcSinkhornBackwardScratch},
                                   shapes, plan, context);
}

}  // namespace anabranch
