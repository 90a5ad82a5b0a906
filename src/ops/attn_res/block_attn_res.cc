// block_attn_res: plan and run. The arithmetic of a token is kernels/attn_residual.
#include <algorithm>

#include "src/core/parallel.h"
#include "src/ops/attn_res/block_attn_plan.h"
#include "src/ops/attn_res/row_pipe.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

class ForwardPlan final : public BlockAttnPlan {
 public:
  ForwardPlan(const BlockAttnResArgs& a, Target target, const Context& context)
      : BlockAttnPlan(a, target),
        h_(std::vector<TensorView>{a.h}, TensorView()),
        dense_(sources_.dense() && h_.dense()) {
    const double bytes = token_bytes(sources_.count(), 1);
    // Items of nearly the same size, a multiple of the threads. Not too small: while one token is
    // summed the next one is read, and the last one of an item has no next.
    const std::int64_t threads = context.threads();
    const auto largest = std::max<std::int64_t>(static_cast<std::int64_t>(4194304 / bytes), 1);
    const std::int64_t rounds = std::max(CeilDiv(CeilDiv(tokens_, largest), threads),
                                         std::min<std::int64_t>(tokens_ / (8 * threads), 8));
    info.work_items = std::min(tokens_, rounds * threads);
    info.tile = CeilDiv(tokens_, info.work_items);
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
    ForEachSlot(context, info.threads, info.work_items, [&](int slot, const auto& take) {
      std::byte* scratch = workspace + query_bytes_ + slot_bytes_ * static_cast<std::size_t>(slot);
      const auto start = [this](std::int64_t item) { return Start(item); };
      TokenStream stream(info.work_items, take, start);
      if (dense_) {
        RunDense(stream, query, reinterpret_cast<float*>(scratch));
      } else {
        for (PipeToken t = stream.Next(); t.present(); t = stream.Next()) {
          RunStaged(t.index, query, scratch);
        }
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

  // Sums one token while it scores the next one.
  template <class Stream>
  void RunDense(const Stream& stream, const float* query, float* carry) const {
    const int count = sources_.count();
    AttnRowSums sums[kMaxSources];
    float alpha[kMaxSources] = {};
    for (RowPipe pipe(sources_, stream); !pipe.done(); pipe.Advance()) {
      const bool sum = pipe.cached().present();
      const bool score = pipe.read().present();
      void* out = nullptr;
      if (sum) h_.Rows(pipe.cached().index, &out);
      if (score) std::fill_n(carry, count * kAttnCarry, 0.0f);
      ForEachPart(sum, score, [&](std::int64_t k, std::int64_t length, bool both) {
        AttnSum cached;
        if (sum) {
          cached = {pipe.CachedRows(k), alpha, count, length, Element(out, k), info.streaming};
        }
        AttnDots read;
        if (score) {
          read = {pipe.ReadRows(k), count, query + k, nullptr,         norm_,
                  length,           carry, nullptr,   pipe.NextRows(k)};
        }
        if (both) return pipe_kernels_.dots_and_sum(read, cached);
        if (sum) kernels_.sum(cached);
        if (score) kernels_.dots(read);
      });
      if (score) {
        kernels_.dots({nullptr, count, nullptr, nullptr, norm_, 0, carry, sums});
        Weigh(pipe.read().index, sums, alpha);
      }
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

}  // namespace

Status Prepare(const BlockAttnResArgs& args, Plan* plan, const Context& context) {
  const TensorView main = args.blocks.empty() ? TensorView() : args.blocks[0];
  return PreparePlan<ForwardPlan>(
      "block_attn_res", args, main, true, &BlockAttnResReference, [&] { return Shapes(args); },
      plan, context);
}

}  // namespace anabranch
