// block_attn_res_backward: plan and run. The arithmetic of a token is kernels/attn_residual.
#include <algorithm>

#include "src/core/parallel.h"
#include "src/ops/attn_res/block_attn_plan.h"
#include "src/ops/attn_res/row_pipe.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

class BackwardPlan : public BlockAttnPlan {
 public:
  BackwardPlan(const BlockAttnResBackwardArgs& a, Target target, const Context& context)
      : BlockAttnPlan(a, target),
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
    ForEachSlot(context, info.threads, chunks_.count, [&](int slot, const auto& take) {
      std::byte* scratch = slots + slot_bytes_ * static_cast<std::size_t>(slot);
      const auto start = [this](std::int64_t item) {
        return std::min(tokens_, item * chunks_.size);
      };
      TokenStream stream(chunks_.count, take, start);
      ChunkSums sums_of{sums, stride};
      if (dense_) {
        RunDense(stream, query, sums_of, reinterpret_cast<float*>(scratch));
      } else {
        for (PipeToken t = stream.Next(); t.present(); t = stream.Next()) {
          RunStaged(t.index, query, sums_of(t), scratch);
        }
      }
      if (info.streaming) kernels_.flush();
    });
    SumChunks(sums, chunks_.count, stride, PackedLength(d_), context, info.threads);
    StoreParamGrads({w_, gamma_, grad_w_, grad_gamma_, scale_, norm_}, tokens_ > 0 ? sums : nullptr,
                    d_, dtype_);
  }

 private:
  // The vector u of a token's chunk, zeroed before its first token.
  struct ChunkSums {
    float* sums;
    std::int64_t stride;
    std::int64_t chunk = -1;
    float* operator()(PipeToken token) {
      float* u = sums + token.item * stride;
      if (token.item != chunk) std::fill_n(u, stride, 0.0f);
      chunk = token.item;
      return u;
    }
  };

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

  // Writes the gradient of one token while it scores the next one.
  template <class Stream>
  void RunDense(const Stream& stream, const float* query, ChunkSums sums_of, float* carry) const {
    const int count = sources_.count();
    AttnRowSums sums[kMaxSources];
    Weights weights;
    for (RowPipe pipe(sources_, stream); !pipe.done(); pipe.Advance()) {
      const bool write = pipe.cached().present();
      const bool score = pipe.read().present();
      void* out[kMaxSources];
      const void* grad[2] = {};  // of the token that is written, of the one that is read
      float* u = nullptr;
      if (write) {
        grads_.Rows(pipe.cached().index, out);
        grad_h_.Rows(pipe.cached().index, &grad[0]);
        u = sums_of(pipe.cached());
      }
      if (score) {
        grad_h_.Rows(pipe.read().index, &grad[1]);
        std::fill_n(carry, count * kAttnCarry, 0.0f);
      }
      ForEachPart(write, score, [&](std::int64_t k, std::int64_t length, bool both) {
        void* out_part[kMaxSources];
        AttnGradRows cached;
        if (write) {
          for (int l = 0; l < count; ++l) out_part[l] = Element(out[l], k);
          cached = {pipe.CachedRows(k),
                    Element(grad[0], k),
                    query + k,
                    weights.alpha,
                    weights.t,
                    norm_ ? weights.c : nullptr,
                    count,
                    length,
                    u + k,
                    out_part,
                    info.streaming};
        }
        AttnDots read;
        if (score) {
          read = {pipe.ReadRows(k), count, query + k, Element(grad[1], k), want_squares(),
                  length,           carry, nullptr,   pipe.NextRows(k)};
        }
        if (both) return pipe_kernels_.dots_and_grad_rows(read, cached);
        if (write) kernels_.grad_rows(cached);
        if (score) kernels_.dots(read);
      });
      if (score) {
        kernels_.dots({nullptr, count, nullptr, grad[1], want_squares(), 0, carry, sums});
        Weigh(pipe.read().index, sums, &weights);
      }
    }
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

}  // namespace

// Not done without tokens: the parameters' gradients are zeroed.
Status Prepare(const BlockAttnResBackwardArgs& args, Plan* plan, const Context& context) {
  const TensorView main = args.blocks.empty() ? TensorView() : args.blocks[0];
  return PreparePlan<BackwardPlan>("block_attn_res_backward", args, main, false,
                                   &BlockAttnResBackwardReference, Shapes(args), plan, context);
}

}  // namespace anabranch
