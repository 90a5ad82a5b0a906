// block_attn_res: plan and run. The arithmetic of a token is kernels/attn_residual.
#include <algorithm>
#include <cmath>

#include "src/core/check.h"
#include "src/core/half.h"
#include "src/core/parallel.h"
#include "src/core/plan_impl.h"
#include "src/core/tokens.h"
#include "src/kernels/attn_residual.h"
#include "src/ops/attn_res/attn_res.h"
#include "src/ops/attn_res/params.h"
#include "src/ops/attn_res/row_pipe.h"
#include "src/ops/attn_res/sources.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

// A cache [*, L] or [*, L, 1].
struct Cache {
  Cache() = default;
  Cache(const TensorView& view, int leading)
      : rows(view, view.defined() ? view.rank() - leading : 0),
        stride(view.defined() ? view.strides[leading] : 0) {}
  bool defined() const { return rows.defined(); }
  float& At(std::int64_t t, int l) const {
    return reinterpret_cast<float*>(rows.Token(t))[l * stride];
  }
  TokenRows rows;
  std::int64_t stride = 0;
};

// What both directions keep of their arguments.
class AttnPlan : public PlanImpl {
 public:
  template <class Args>
  AttnPlan(const Args& a, Target target)
      : dtype_(a.blocks[0].dtype),
        leading_(a.blocks[0].rank() - 1),
        tokens_(CountTokens(a.blocks[0].sizes, leading_)),
        d_(a.blocks[0].sizes[leading_]),
        kernels_(GetAttnResidualKernels(dtype_, target)),
        sources_(a.blocks, a.partial_block),
        w_(a.proj_weight),
        gamma_(a.enable_rmsnorm ? a.rmsnorm_gamma : TensorView()),
        rms_cache_(a.rms_cache, leading_),
        alpha_cache_(a.alpha_cache, leading_),
        scale_(static_cast<float>(a.scale)),
        eps_(static_cast<float>(a.rmsnorm_eps)),
        norm_(a.enable_rmsnorm) {
    info.target = kernels_.target;
    query_bytes_ = AlignUp(static_cast<std::size_t>(PackedLength(d_)) * sizeof(float));
  }

 protected:
  double row_bytes() const {
    return static_cast<double>(d_) * static_cast<double>(DTypeSize(dtype_));
  }
  // Element k of a row of the activations' dtype.
  void* Element(void* row, std::int64_t k) const {
    return static_cast<std::byte*>(row) + k * static_cast<std::int64_t>(DTypeSize(dtype_));
  }
  const void* Element(const void* row, std::int64_t k) const {
    return static_cast<const std::byte*>(row) + k * static_cast<std::int64_t>(DTypeSize(dtype_));
  }
  double token_bytes(int reads, int writes) const { return row_bytes() * (reads + writes); }

  float Rms(float squares) const {
    return norm_ ? std::sqrt(squares / static_cast<float>(d_) + eps_) : 1.0f;
  }

  DType dtype_;
  int leading_;
  std::int64_t tokens_;
  std::int64_t d_;
  AttnResidualKernels kernels_;
  Sources sources_;
  ParamRow w_, gamma_;
  Cache rms_cache_, alpha_cache_;
  float scale_, eps_;
  bool norm_;
  std::size_t query_bytes_ = 0;
};

class ForwardPlan : public AttnPlan {
 public:
  ForwardPlan(const BlockAttnResArgs& a, Target target, const Context& context)
      : AttnPlan(a, target),
        h_(std::vector<TensorView>{a.h}, TensorView()),
        dense_(sources_.dense() && h_.dense()) {
    const double bytes = token_bytes(sources_.count(), 1);
    // Items of nearly the same size, a multiple of the threads. Not too small: while one token is
    // summed the next one is read, and the last one of an item has no next.
    const std::int64_t threads = context.threads();
    const auto largest = std::max<std::int64_t>(static_cast<std::int64_t>(4194304 / bytes), 1);
    const std::int64_t rounds = std::max(CeilDiv(CeilDiv(tokens_, largest), threads),
                                         std::min<std::int64_t>(tokens_ / (8 * threads), 8));
    info.tile = CeilDiv(tokens_, std::min(tokens_, rounds * threads));
    info.work_items = CeilDiv(tokens_, info.tile);
    info.threads = ThreadsForBytes(context, info.work_items, bytes * static_cast<double>(tokens_));
    info.streaming = dense_ && row_bytes() * static_cast<double>(tokens_) >
                                   static_cast<double>(StreamingThreshold());
    info.kernel = dense_ ? "two passes over a cached token" : "staged pieces";
    carry_bytes_ = AlignUp(static_cast<std::size_t>(sources_.count()) * kAttnCarry * 4);
    slot_bytes_ = carry_bytes_;
    if (!dense_) slot_bytes_ += AlignUp(sources_.piece_bytes()) + AlignUp(h_.piece_bytes());
    info.workspace_bytes = query_bytes_ + slot_bytes_ * static_cast<std::size_t>(info.threads);
  }

  void Run(std::byte* workspace, const Context& context) const override {
    auto* query = reinterpret_cast<float*>(workspace);
    PackQuery(w_, gamma_, scale_, d_, dtype_, query);
    ForEachItem(context, info.threads, info.work_items, [&](int slot, std::int64_t item) {
      std::byte* scratch = workspace + query_bytes_ + slot_bytes_ * static_cast<std::size_t>(slot);
      const std::int64_t begin = Start(item);
      const std::int64_t end = Start(item + 1);
      if (dense_) {
        RunDense(begin, end, query, reinterpret_cast<float*>(scratch));
      } else {
        for (std::int64_t t = begin; t < end; ++t) RunStaged(t, query, scratch);
      }
      if (info.streaming) kernels_.flush();
    });
  }

 private:
  // First token of an item: the tokens are dealt out evenly.
  std::int64_t Start(std::int64_t item) const {
    const std::int64_t size = tokens_ / info.work_items;
    return item * size + std::min(item, tokens_ % info.work_items);
  }

  // Scores to weights, and the caches.
  void Weigh(std::int64_t t, const AttnRowSums* sums, float* alpha) const {
    const int count = sources_.count();
    for (int l = 0; l < count; ++l) {
      const float rms = Rms(sums[l].squares);
      alpha[l] = sums[l].query / rms;
      if (rms_cache_.defined()) rms_cache_.At(t, l) = rms;
    }
    const float largest = *std::max_element(alpha, alpha + count);
    kernels_.exp_minus(alpha, largest, count, alpha);
    float sum = 0;
    for (int l = 0; l < count; ++l) sum += alpha[l];
    for (int l = 0; l < count; ++l) {
      alpha[l] /= sum;
      if (alpha_cache_.defined()) alpha_cache_.At(t, l) = alpha[l];
    }
  }

  // Sums token t while it scores token t + 1.
  void RunDense(std::int64_t begin, std::int64_t end, const float* query, float* carry) const {
    const int count = sources_.count();
    RowPipe pipe(sources_, d_, begin, end);
    AttnRowSums sums[kMaxSources];
    float alpha[kMaxSources] = {};
    for (std::int64_t t = begin - 1; t < end; ++t) {
      void* out = nullptr;
      if (t >= begin) h_.Rows(t, &out);
      if (t + 1 < end) std::fill_n(carry, count * kAttnCarry, 0.0f);
      for (std::int64_t k = 0; k < d_; k += kPipePiece) {
        const std::int64_t length = std::min(kPipePiece, d_ - k);
        if (t >= begin) {
          kernels_.sum({pipe.Cached(k), alpha, count, length, Element(out, k), info.streaming});
        }
        if (t + 1 < end) {
          kernels_.dots({pipe.Read(k), count, query + k, nullptr, norm_, length, carry,
                         k + length == d_ ? sums : nullptr, pipe.Ahead(k)});
        }
      }
      if (t + 1 < end) Weigh(t + 1, sums, alpha);
      pipe.Advance();
    }
  }

  void RunStaged(std::int64_t t, const float* query, std::byte* scratch) const {
    const int count = sources_.count();
    const void* rows[kMaxSources];
    AttnRowSums sums[kMaxSources];
    float alpha[kMaxSources] = {};
    auto* carry = reinterpret_cast<float*>(scratch);
    std::byte* pieces = scratch + carry_bytes_;
    std::byte* out_piece = pieces + AlignUp(sources_.piece_bytes());
    std::fill_n(carry, count * kAttnCarry, 0.0f);
    for (std::int64_t begin = 0; begin < d_; begin += kAttnPiece) {
      const std::int64_t length = std::min(kAttnPiece, d_ - begin);
      sources_.Gather(t, begin, length, pieces, rows);
      kernels_.dots({rows, count, query + begin, nullptr, norm_, length, carry, sums});
    }
    Weigh(t, sums, alpha);
    for (std::int64_t begin = 0; begin < d_; begin += kAttnPiece) {
      const std::int64_t length = std::min(kAttnPiece, d_ - begin);
      void* out = nullptr;
      sources_.Gather(t, begin, length, pieces, rows);
      h_.Open(t, begin, out_piece, &out);
      kernels_.sum({rows, alpha, count, length, out, false});
      h_.Scatter(t, begin, length, &out);
    }
  }

  Sources h_;
  bool dense_;
  std::size_t carry_bytes_ = 0, slot_bytes_ = 0;
};

class BackwardPlan : public AttnPlan {
 public:
  BackwardPlan(const BlockAttnResBackwardArgs& a, Target target, const Context& context)
      : AttnPlan(a, target),
        grad_h_(std::vector<TensorView>{a.grad_h}, TensorView()),
        grads_(a.grad_blocks, a.grad_partial_block),
        grad_w_(a.grad_proj_weight),
        grad_gamma_(a.grad_rmsnorm_gamma),
        chunks_(tokens_),
        dense_(sources_.dense() && grad_h_.dense() && grads_.dense()) {
    const int count = sources_.count();
    const double bytes = token_bytes(count + 1, count) * static_cast<double>(tokens_);
    info.work_items = chunks_.count;
    info.threads = ThreadsForBytes(context, info.work_items, bytes);
    info.tile = chunks_.size;
    info.streaming = dense_ && row_bytes() * count * static_cast<double>(tokens_) >
                                   static_cast<double>(StreamingThreshold());
    info.kernel = dense_ ? "two passes over a cached token" : "staged pieces";
    carry_bytes_ = AlignUp(static_cast<std::size_t>(count) * kAttnCarry * 4);
    slot_bytes_ = carry_bytes_;
    if (!dense_) {
      slot_bytes_ += AlignUp(sources_.piece_bytes()) + AlignUp(grads_.piece_bytes()) +
                     AlignUp(grad_h_.piece_bytes());
    }
    info.workspace_bytes = query_bytes_ * static_cast<std::size_t>(1 + chunks_.count) +
                           slot_bytes_ * static_cast<std::size_t>(info.threads);
  }

  void Run(std::byte* workspace, const Context& context) const override {
    auto* query = reinterpret_cast<float*>(workspace);
    auto* sums = reinterpret_cast<float*>(workspace + query_bytes_);
    const auto stride = static_cast<std::int64_t>(query_bytes_ / sizeof(float));
    std::byte* slots = workspace + query_bytes_ * static_cast<std::size_t>(1 + chunks_.count);
    PackQuery(w_, gamma_, scale_, d_, dtype_, query);
    ForEachItem(context, info.threads, chunks_.count, [&](int slot, std::int64_t item) {
      float* u = sums + item * stride;
      std::byte* scratch = slots + slot_bytes_ * static_cast<std::size_t>(slot);
      std::fill_n(u, stride, 0.0f);
      const std::int64_t end = std::min(tokens_, (item + 1) * chunks_.size);
      const std::int64_t begin = item * chunks_.size;
      if (dense_) {
        RunDense(begin, end, query, u, reinterpret_cast<float*>(scratch));
      } else {
        for (std::int64_t t = begin; t < end; ++t) RunStaged(t, query, u, scratch);
      }
      if (info.streaming) kernels_.flush();
    });
    SumChunks(sums, chunks_.count, stride, PackedLength(d_), context, info.threads);
    StoreParamGrads({w_, gamma_, grad_w_, grad_gamma_, scale_, norm_}, tokens_ > 0 ? sums : nullptr,
                    d_, dtype_);
  }

 private:
  // The three numbers a row that its gradient is made of.
  struct Weights {
    float alpha[kMaxSources];
    float t[kMaxSources];
    float c[kMaxSources];
  };

  bool want_squares() const { return norm_ && !rms_cache_.defined(); }

  void Weigh(std::int64_t t, const AttnRowSums* sums, Weights* weights) const {
    const int count = sources_.count();
    float delta = 0;
    for (int l = 0; l < count; ++l) {
      weights->alpha[l] = CleanNan(alpha_cache_.At(t, l));
      delta += weights->alpha[l] * sums[l].grad;
    }
    for (int l = 0; l < count; ++l) {
      float rms = 1.0f;
      if (norm_) rms = rms_cache_.defined() ? rms_cache_.At(t, l) : Rms(sums[l].squares);
      const float score = sums[l].query / rms;
      weights->t[l] = CleanNan(weights->alpha[l] * (sums[l].grad - delta) / rms);
      weights->c[l] = CleanNan(weights->t[l] * (score / (static_cast<float>(d_) * rms)));
    }
  }

  // Writes the gradient of token t while it scores token t + 1.
  void RunDense(std::int64_t begin, std::int64_t end, const float* query, float* u,
                float* carry) const {
    const int count = sources_.count();
    RowPipe pipe(sources_, d_, begin, end);
    AttnRowSums sums[kMaxSources];
    Weights weights;
    for (std::int64_t t = begin - 1; t < end; ++t) {
      if (t + 1 < end) std::fill_n(carry, count * kAttnCarry, 0.0f);
      for (std::int64_t k = 0; k < d_; k += kPipePiece) {
        const std::int64_t length = std::min(kPipePiece, d_ - k);
        if (t >= begin) WriteGradient(t, k, length, pipe.Cached(k), query, weights, u);
        if (t + 1 < end) {
          const void* grad = nullptr;
          grad_h_.Rows(t + 1, &grad);
          kernels_.dots({pipe.Read(k), count, query + k, Element(grad, k), want_squares(), length,
                         carry, k + length == d_ ? sums : nullptr, pipe.Ahead(k)});
        }
      }
      if (t + 1 < end) Weigh(t + 1, sums, &weights);
      pipe.Advance();
    }
  }

  void WriteGradient(std::int64_t t, std::int64_t k, std::int64_t length, const void* const* rows,
                     const float* query, const Weights& weights, float* u) const {
    const int count = sources_.count();
    void* out[kMaxSources];
    const void* grad = nullptr;
    grads_.Rows(t, out);
    for (int l = 0; l < count; ++l) out[l] = Element(out[l], k);
    grad_h_.Rows(t, &grad);
    kernels_.grad_rows({rows, Element(grad, k), query + k, weights.alpha, weights.t,
                        norm_ ? weights.c : nullptr, count, length, u + k, out, info.streaming});
  }

  void RunStaged(std::int64_t t, const float* query, float* u, std::byte* scratch) const {
    const int count = sources_.count();
    const void* rows[kMaxSources];
    void* out[kMaxSources];
    const void* grad = nullptr;
    AttnRowSums sums[kMaxSources];
    Weights weights;
    auto* carry = reinterpret_cast<float*>(scratch);
    std::byte* pieces = scratch + carry_bytes_;
    std::byte* out_pieces = pieces + AlignUp(sources_.piece_bytes());
    std::byte* grad_piece = out_pieces + AlignUp(grads_.piece_bytes());
    std::fill_n(carry, count * kAttnCarry, 0.0f);
    for (std::int64_t begin = 0; begin < d_; begin += kAttnPiece) {
      const std::int64_t length = std::min(kAttnPiece, d_ - begin);
      sources_.Gather(t, begin, length, pieces, rows);
      grad_h_.Gather(t, begin, length, grad_piece, &grad);
      kernels_.dots({rows, count, query + begin, grad, want_squares(), length, carry, sums});
    }
    Weigh(t, sums, &weights);
    for (std::int64_t begin = 0; begin < d_; begin += kAttnPiece) {
      const std::int64_t length = std::min(kAttnPiece, d_ - begin);
      sources_.Gather(t, begin, length, pieces, rows);
      grad_h_.Gather(t, begin, length, grad_piece, &grad);
      grads_.Open(t, begin, out_pieces, out);
      kernels_.grad_rows({rows, grad, query + begin, weights.alpha, weights.t,
                          norm_ ? weights.c : nullptr, count, length, u + begin, out, false});
      grads_.Scatter(t, begin, length, out);
    }
  }

  Sources grad_h_, grads_;
  ParamRow grad_w_, grad_gamma_;
  TokenChunks chunks_;
  bool dense_;
  std::size_t carry_bytes_ = 0, slot_bytes_ = 0;
};

template <class Args>
auto Shapes(const Args& args) {
  const std::size_t count = args.blocks.size() + (args.partial_block.defined() ? 1 : 0);
  const TensorView first = args.blocks.empty() ? TensorView() : args.blocks[0];
  return [count, first, norm = args.enable_rmsnorm] {
    return "L=" + std::to_string(count) + " " + Describe("blocks[0]", first) +
           (norm ? "norm" : "no norm");
  };
}

}  // namespace

Status Prepare(const BlockAttnResArgs& args, Plan* plan, const Context& context) {
  const TensorView main = args.blocks.empty() ? TensorView() : args.blocks[0];
  return PreparePlan<ForwardPlan>("block_attn_res", args, main, true, &BlockAttnResReference,
                                  Shapes(args), plan, context);
}

// Not done without tokens: the parameters' gradients are zeroed.
Status Prepare(const BlockAttnResBackwardArgs& args, Plan* plan, const Context& context) {
  const TensorView main = args.blocks.empty() ? TensorView() : args.blocks[0];
  return PreparePlan<BackwardPlan>("block_attn_res_backward", args, main, false,
                                   &BlockAttnResBackwardReference, Shapes(args), plan, context);
}

}  // namespace anabranch
