// mhc_post_pre: plan and run. The work is kernels/post_forward, pre_forward and sinkhorn_stage.
#include "src/ops/mhc_post_pre/mhc_post_pre.h"

#include "src/core/check.h"
#include "src/core/parallel.h"
#include "src/core/plan_impl.h"
#include "src/core/tokens.h"
#include "src/kernels/post_forward.h"
#include "src/kernels/pre_forward.h"
#include "src/kernels/sinkhorn_stage.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

PreForwardTensors TensorsOf(const MhcPostPreArgs& a) {
  const int leading = a.x.rank() - 2;
  PreForwardTensors t;
  t.x = a.y;
  t.phi = a.phi;
  t.alpha = a.alpha;
  t.bias = a.bias;
  t.h_in = a.h_in;
  t.h_post = TokenRows(a.next_h_post, 1);
  if (a.inv_rms.defined()) t.inv_rms = TokenRows(a.inv_rms, a.inv_rms.rank() - leading);
  t.h_mix = TokenRows(a.h_mix, 1);
  t.h_pre = TokenRows(a.h_pre, 1);
  t.norm_eps = static_cast<float>(a.options.norm_eps);
  t.hc_eps = static_cast<float>(a.options.hc_eps);
  t.post_multiplier = static_cast<float>(a.options.post_multiplier);
  return t;
}

// The streams as mhc_post makes them: in y itself; or, when y is large, in a tile that stays in
// cache for the projection and past the caches in y at the same time, so that y's lines are never
// read.
class PostSource final : public StreamSource {
 public:
  PostSource(const MhcPostPreArgs& a, Target target)
      : post_(a.x, a.h_res, a.h_out, a.h_post, target),
        y_(a.y, 2),
        n_(a.y.sizes[a.y.rank() - 2]),
        d_(a.y.sizes[a.y.rank() - 1]),
        streaming_(post_.StreamsTo(y_) &&
                   a.y.numel() * static_cast<std::int64_t>(DTypeSize(a.y.dtype)) >
                       StreamingThreshold()) {}

  bool streaming() const { return streaming_; }

  const TokenRows* InPlace() const override {
    return !streaming_ && y_.stride1 == 1 ? &y_ : nullptr;
  }

  void Make(std::int64_t token, int count, const TokenRows& tile) const override {
    if (InPlace() != nullptr) {
      for (int m = 0; m < count; ++m) post_.Run(token + m, y_, token + m, false);
      return;
    }
    for (int m = 0; m < count; ++m) {
      post_.Run(token + m, tile, m, false, streaming_ ? &y_ : nullptr);
      if (!streaming_) CopyToY(token + m, tile.Token(m));
    }
    if (streaming_) post_.kernels().flush();
  }

 private:
  void CopyToY(std::int64_t token, const std::byte* from) const {
    const auto element = static_cast<std::int64_t>(y_.element);
    for (std::int64_t i = 0; i < n_; ++i) {
      CopyStrided(y_.Token(token) + i * y_.stride0 * element, y_.stride1, from + i * d_ * element,
                  1, d_, y_.element);
    }
  }

  PostForward post_;
  TokenRows y_;
  std::int64_t n_, d_;
  bool streaming_;
};

class FusedPlan : public PlanImpl {
 public:
  FusedPlan(const MhcPostPreArgs& a, Target target, const Context& context)
      : source_(a, target),
        stage_(PreSinkhornParams(a.options, PreSinkhornShape(a.x).n, a.options.num_iters),
               TokenRows::Matrix(a.next_h_res, a.x.rank() - 2, a.x.sizes[a.x.rank() - 2]),
               TokenRows(), a.sum_out, a.norm_out, false, target),
        forward_(PreSinkhornShape(a.x), TensorsOf(a), &stage_, target, context, &info, &source_) {
    info.streaming = info.streaming || source_.streaming();
  }
  void Run(std::byte* workspace, const Context& context) const override {
    forward_.Run(workspace, context);
  }

 private:
  PostSource source_;
  SinkhornStage stage_;
  PreForward forward_;
};

}  // namespace

Status Prepare(const MhcPostPreArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [x = args.x, mixed = args.h_res.defined(),
                       iterations = args.options.num_iters] {
    return Describe("x", x) + (mixed ? "mixed, " : "h_res=absent, ") + std::to_string(iterations) +
           " iterations";
  };
  return PreparePlan<FusedPlan>("mhc_post_pre", args, args.x, true, &MhcPostPreReference, shapes,
                                plan, context);
}

}  // namespace anabranch
