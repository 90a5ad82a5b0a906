// mhc_post: validate, plan, run. The arithmetic is kernels/stream_mix.
#include "src/ops/mhc_post/mhc_post.h"

#include <algorithm>
#include <utility>

#include "src/core/check.h"
#include "src/core/parallel.h"
#include "src/core/plan_impl.h"
#include "src/core/tokens.h"
#include "src/kernels/post_forward.h"
#include "src/kernels/stream_mix.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

struct Shape {
  explicit Shape(const TensorView& x)
      : leading(x.rank() - 2),
        tokens(CountTokens(x.sizes, leading)),
        n(static_cast<int>(x.sizes[leading])),
        d(x.sizes[leading + 1]) {}
  int leading;
  std::int64_t tokens;
  int n;
  std::int64_t d;
};

// What both directions plan alike: rows moved a token decide tile and threads.
class MixPlan : public PlanImpl {
 public:
  MixPlan(const Shape& shape, const TensorView& x, int rows_read, int rows_written, Target target,
          const Context& context)
      : shape_(shape), kernels_(GetStreamMixKernels(x.dtype, shape.n, target)) {
    const double row_bytes = static_cast<double>(shape.d) * static_cast<double>(DTypeSize(x.dtype));
    const double token_bytes = row_bytes * (rows_read + rows_written);
    tile_ = TokensPerItem(context, shape.tokens, token_bytes);
    info.work_items = CeilDiv(shape.tokens, tile_);
    info.threads =
        ThreadsForBytes(context, info.work_items, token_bytes * static_cast<double>(shape.tokens));
    info.tile = tile_;
    info.streaming = row_bytes * rows_written * static_cast<double>(shape.tokens) >
                     static_cast<double>(StreamingThreshold());
    info.kernel = kernels_.name;
    info.target = kernels_.target;
  }

 protected:
  // Calls body(token) for all tokens.
  template <class Body>
  void ForEachToken(const Context& context, const Body& body) const {
    ForEachItem(context, info.threads, info.work_items, [&](int /*slot*/, std::int64_t item) {
      const std::int64_t end = std::min(shape_.tokens, (item + 1) * tile_);
      for (std::int64_t t = item * tile_; t < end; ++t) body(t);
      if (info.streaming) kernels_.flush();
    });
  }

  // From token t to the next, in elements; 0 from the last one.
  std::ptrdiff_t Next(const TokenRows& rows, std::int64_t t) const {
    return t + 1 < shape_.tokens ? rows.index.Offset(t + 1) - rows.index.Offset(t) : 0;
  }

  Shape shape_;
  StreamMixKernels kernels_;
  std::int64_t tile_ = 1;
};

class ForwardPlan : public MixPlan {
 public:
  ForwardPlan(const MhcPostArgs& a, Target target, const Context& context)
      : MixPlan(Shape(a.x), a.x, Shape(a.x).n + 1, Shape(a.x).n, target, context),
        post_(a.x, a.h_res, a.h_out, a.h_post, target),
        y_(a.y, 2) {
    info.streaming = info.streaming && post_.StreamsTo(y_);
  }

  void Run(std::byte* /*workspace*/, const Context& context) const override {
    ForEachToken(context, [this](std::int64_t t) { post_.Run(t, y_, info.streaming); });
  }

 private:
  PostForward post_;
  TokenRows y_;
};

class BackwardPlan : public MixPlan {
 public:
  BackwardPlan(const MhcPostBackwardArgs& a, Target target, const Context& context)
      : MixPlan(Shape(a.x), a.x, 2 * Shape(a.x).n + 1, Shape(a.x).n + 1, target, context),
        grad_y_(a.grad_output, 2),
        x_(a.x, 2),
        h_out_(a.h_out, 1),
        h_post_(a.h_post, 1),
        h_res_(TokenRows::Matrix(a.h_res, shape_.leading, shape_.n)),
        grad_x_(a.grad_x, 2),
        grad_h_res_(TokenRows::Matrix(a.grad_h_res, shape_.leading, shape_.n)),
        grad_h_out_(a.grad_h_out, 1),
        grad_h_post_(a.grad_h_post, 1),
        dense_(grad_y_.stride1 == 1 && x_.stride1 == 1 && h_out_.stride1 == 1 &&
               grad_x_.stride1 == 1 && grad_h_out_.stride1 == 1) {
    info.streaming = info.streaming && dense_;
  }

  void Run(std::byte* /*workspace*/, const Context& context) const override {
    ForEachToken(context, [this](std::int64_t t) {
      const MixCoefficients c(h_post_, h_res_, t, shape_.n);
      alignas(64) float sums[(kMaxStreams + 1) * kMaxStreams * 16];
      std::fill_n(sums, (shape_.n + 1) * shape_.n * 16, 0.0f);
      StreamMixBackward call{grad_y_.Token(t),
                             grad_y_.stride0,
                             x_.Token(t),
                             x_.stride0,
                             h_out_.Token(t),
                             c.post,
                             c.matrix(),
                             grad_x_.Token(t),
                             grad_x_.stride0,
                             grad_h_out_.Token(t),
                             sums,
                             grad_h_res_.defined(),
                             shape_.n,
                             shape_.d,
                             info.streaming,
                             Next(grad_y_, t),
                             Next(x_, t),
                             Next(h_out_, t)};
      if (dense_) {
        kernels_.backward(call);
      } else {
        RunStrided(t, call);
      }
      StoreSums(t, sums);
    });
  }

 private:
  void RunStrided(std::int64_t t, StreamMixBackward call) const {
    alignas(64) std::byte grad[kMaxStreams * kPieceBytes];
    alignas(64) std::byte x[kMaxStreams * kPieceBytes];
    alignas(64) std::byte h_out[kPieceBytes];
    alignas(64) std::byte grad_h_out[kPieceBytes];
    call.grad_y = call.grad_x = grad;
    call.x = x;
    call.h_out = h_out;
    call.grad_h_out = grad_h_out;
    call.grad_y_lane = call.x_lane = call.grad_x_lane = kPiece;
    for (std::int64_t begin = 0; begin < shape_.d; begin += kPiece) {
      call.d = std::min(kPiece, shape_.d - begin);
      GatherPiece(grad_y_, t, begin, call.d, shape_.n, grad);
      GatherPiece(x_, t, begin, call.d, shape_.n, x);
      GatherPiece(h_out_, t, begin, call.d, 1, h_out);
      kernels_.backward(call);
      ScatterPiece(grad, t, begin, call.d, shape_.n, grad_x_);
      ScatterPiece(grad_h_out, t, begin, call.d, 1, grad_h_out_);
    }
  }

  void StoreSums(std::int64_t t, const float* sums) const {
    const int n = shape_.n;
    float out[(kMaxStreams + 1) * kMaxStreams];
    kernels_.finish_sums(sums, (n + 1) * n, out);
    for (int j = 0; grad_h_res_.defined() && j < n; ++j) {
      for (int i = 0; i < n; ++i) grad_h_res_.At<float>(t, j, i) = out[j * n + i];
    }
    for (int i = 0; i < n; ++i) grad_h_post_.At<float>(t, i) = out[n * n + i];
  }

  TokenRows grad_y_, x_, h_out_, h_post_, h_res_, grad_x_, grad_h_res_, grad_h_out_, grad_h_post_;
  bool dense_;
};

}  // namespace

Status Prepare(const MhcPostArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [x = args.x, mixed = args.h_res.defined()] {
    return Describe("x", x) + (mixed ? "mixed" : "h_res=absent");
  };
  return PreparePlan<ForwardPlan>("mhc_post", args, args.x, true, &MhcPostReference, shapes, plan,
                                  context);
}

Status Prepare(const MhcPostBackwardArgs& args, Plan* plan, const Context& context) {
  const auto shapes = [x = args.x, mixed = args.h_res.defined()] {
    return Describe("x", x) + (mixed ? "mixed" : "h_res=absent");
  };
  return PreparePlan<BackwardPlan>("mhc_post_backward", args, args.x, true,
                                   &MhcPostBackwardReference, shapes, plan, context);
}

}  // namespace anabranch
