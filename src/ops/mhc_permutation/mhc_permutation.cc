// mhc_permutation: plan and run, 16 tokens at a time. The arithmetic is kernels/permutation.
#include "src/ops/mhc_permutation/mhc_permutation.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/core/half.h"
#include "src/core/parallel.h"
#include "src/core/plan_impl.h"
#include "src/core/tokens.h"
#include "src/kernels/permutation.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

constexpr std::int64_t kLanesPerCall = kPermutationLanes;
constexpr std::int64_t kMatrixFloats = kPermutationStreams * kPermutationStreams * kLanesPerCall;
constexpr std::int64_t kLogitFloats = kPermutationLogits * kLanesPerCall;

// Rows [rows][columns] of `count` tokens to and from one token a lane; idle lanes get zeros.
void Gather(const TokenRows& from, std::int64_t token, std::int64_t count, std::int64_t rows,
            std::int64_t columns, float* to) {
  if (count < kLanesPerCall) std::fill_n(to, rows * columns * kLanesPerCall, 0.0f);
  for (std::int64_t l = 0; l < count; ++l) {
    for (std::int64_t e = 0; e < rows * columns; ++e) {
      to[e * kLanesPerCall + l] = CleanNan(from.At<float>(token + l, e / columns, e % columns));
    }
  }
}

void Scatter(const float* from, std::int64_t token, std::int64_t count, std::int64_t rows,
             std::int64_t columns, const TokenRows& to) {
  for (std::int64_t l = 0; l < count; ++l) {
    for (std::int64_t e = 0; e < rows * columns; ++e) {
      to.At<float>(token + l, e / columns, e % columns) = from[e * kLanesPerCall + l];
    }
  }
}

class PermutationPlan : public PlanImpl {
 public:
  PermutationPlan(const TensorView& logits, Target target, const Context& context)
      : leading_(logits.rank() - 1),
        tokens_(CountTokens(logits.sizes, leading_)),
        count_(logits.sizes[leading_]),
        n_(StreamsOfPermutations(count_)),
        kernels_(GetPermutationKernels(target)) {
    tile_ = LaneTile(tokens_, kLanesPerCall, context.threads());
    info.work_items = CeilDiv(tokens_, tile_);
    // An exponential and n sums a logit take about as long as 4 times its memory traffic.
    info.threads = ThreadsForBytes(context, info.work_items,
                                   static_cast<double>(tokens_) * static_cast<double>(count_) * 16);
    info.tile = tile_;
    info.kernel = kernels_.name;
    info.target = kernels_.target;
  }

  void Run(std::byte* /*workspace*/, const Context& context) const override {
    ForEachItem(context, info.threads, info.work_items, [&](int /*slot*/, std::int64_t item) {
      const std::int64_t end = std::min(tokens_, (item + 1) * tile_);
      for (std::int64_t t = item * tile_; t < end; t += kLanesPerCall) {
        RunBlock(t, std::min(kLanesPerCall, end - t));
      }
    });
  }

 protected:
  virtual void RunBlock(std::int64_t token, std::int64_t count) const = 0;

  int leading_;
  std::int64_t tokens_, count_, n_;
  PermutationKernels kernels_;
  std::int64_t tile_ = 1;
};

class ForwardPlan : public PermutationPlan {
 public:
  ForwardPlan(const MhcPermutationArgs& a, Target target, const Context& context)
      : PermutationPlan(a.logits, target, context),
        logits_(a.logits, 1),
        h_res_(TokenRows::Matrix(a.h_res, leading_, n_)) {}

 private:
  void RunBlock(std::int64_t token, std::int64_t count) const override {
    alignas(64) float z[kLogitFloats];
    alignas(64) float h[kMatrixFloats];
    Gather(logits_, token, count, 1, count_, z);
    kernels_.forward({static_cast<int>(n_), z, h});
    Scatter(h, token, count, n_, n_, h_res_);
  }

  TokenRows logits_, h_res_;
};

class BackwardPlan : public PermutationPlan {
 public:
  BackwardPlan(const MhcPermutationBackwardArgs& a, Target target, const Context& context)
      : PermutationPlan(a.logits, target, context),
        grad_h_res_(TokenRows::Matrix(a.grad_h_res, leading_, n_)),
        logits_(a.logits, 1),
        grad_logits_(a.grad_logits, 1) {}

 private:
  void RunBlock(std::int64_t token, std::int64_t count) const override {
    alignas(64) float z[kLogitFloats];
    alignas(64) float grad[kMatrixFloats];
    Gather(logits_, token, count, 1, count_, z);
    Gather(grad_h_res_, token, count, n_, n_, grad);
    kernels_.backward({static_cast<int>(n_), z, grad, z});
    Scatter(z, token, count, 1, count_, grad_logits_);
  }

  TokenRows grad_h_res_, logits_, grad_logits_;
};

}  // namespace

Status Prepare(const MhcPermutationArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [logits = args.logits] { return Describe("logits", logits); };
  return PreparePlan<ForwardPlan>("mhc_permutation", args, args.logits, true,
                                  &MhcPermutationReference, shapes, plan, context);
}

Status Prepare(const MhcPermutationBackwardArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [logits = args.logits] { return Describe("logits", logits); };
  return PreparePlan<BackwardPlan>("mhc_permutation_backward", args, args.logits, true,
                                   &MhcPermutationBackwardReference, shapes, plan, context);
}

}  // namespace anabranch
