// block_attn_res: plan and run. The arithmetic of a token is kernels/attn_residual.
#include <algorithm>

#include "src/core/parallel.h"
#include "src/kernels/attn_packed.h"
#include "src/ops/attn_res/block_attn_plan.h"
#include "src/ops/attn_res/online.h"
#include "src/ops/attn_res/row_pipe.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

class ForwardPlan : public BlockAttnPlan {
 public:
  ForwardPlan(const BlockAttnResArgs& a, Target target, const Context& context)
      : BlockAttnPlan(a, target),
        h_(std::vector<TensorView>{a.h}, TensorView()),
        dense_(sources_.dense() && h_.dense()),
        groups_(sources_.count(), d_ * static_cast<std::int64_t>(DTypeSize(dtype_))),
        packed_(GetAttnPackedKernels(dtype_, target)),
        floats_(GetAttnPackedKernels(DType::kFloat32, target)) {
    const double bytes = token_bytes(sources_.count(), 1);
    // Items of nearly the same size, a multiple of the threads.
    const std::int64_t threads = context.threads();
    const auto largest = std::max<std::int64_t>(static_cast<std::int64_t>(4194304 / bytes), 1);
    const std::int64_t rounds = std::max(CeilDiv(CeilDiv(tokens_, largest), threads),
                                         std::min<std::int64_t>(tokens_ / (8 * threads), 8));
    info.tile = CeilDiv(tokens_, std::min(tokens_, rounds * threads));
    info.work_items = CeilDiv(tokens_, info.tile);
    info.threads = ThreadsForBytes(context, info.work_items, bytes * static_cast<double>(tokens_));
    info.streaming =
        dense_ && !online() &&
        row_bytes() * static_cast<double>(tokens_) > static_cast<double>(StreamingThreshold());
    info.kernel =
        online() ? "online softmax over groups of sources" : "two passes over a cached token";
    if (!dense_) info.kernel = online() ? "online softmax, staged pieces" : "staged pieces";
    carry_bytes_ = AlignUp(static_cast<std::size_t>(sources_.count()) * kAttnCarry * 4);
    sum_bytes_ = online() ? AlignUp(static_cast<std::size_t>(PackedLength(d_)) * sizeof(float)) : 0;
    slot_bytes_ = carry_bytes_ + sum_bytes_;
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
      if (!dense_) {
        for (PipeToken t = stream.Next(); t.present(); t = stream.Next()) {
          online() ? RunStagedOnline(t.index, query, scratch) : RunStaged(t.index, query, scratch);
        }
      } else if (online()) {
        RunOnline(stream, query, scratch);
      } else {
        RunDense(stream, query, reinterpret_cast<float*>(scratch));
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

  bool online() const { return groups_.count > 0; }

  // The score of source l.
  float Score(std::int64_t t, int l, const AttnRowSums& sums) const {
    const float rms = Rms(sums.squares);
    if (rms_cache_.defined()) rms_cache_.At(t, l) = rms;
    return sums.query / rms;
  }

  // Sums to weights, and the caches.
  void Weigh(std::int64_t t, const AttnRowSums* sums, float* alpha) const {
    for (int l = 0; l < sources_.count(); ++l) alpha[l] = Score(t, l, sums[l]);
    Softmax(t, alpha);
  }

  // Scores to weights, in place, and their cache.
  void Softmax(std::int64_t t, float* alpha) const {
    const int count = sources_.count();
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

  // One group of sources of a token.
  struct Group {
    const void* const* rows = nullptr;
    int first = 0;
    int count = 0;
  };

  Group GroupOf(const void* const* token_rows, int group) const {
    const int first = groups_.First(group);
    return {token_rows + first, first, groups_.Rows(group)};
  }

  // Elements [begin, begin + length) of rows first, ..., of a group. Valid until the next call.
  const void* const* Part(const Group& group, int first, std::int64_t begin,
                          const void** rows) const {
    for (int l = first; l < group.count; ++l) rows[l - first] = Element(group.rows[l], begin);
    return rows;
  }

  // Adds a group with the latest weights to `sum` while it scores the next one.
  template <class Stream>
  void RunOnline(const Stream& stream, const float* query, std::byte* scratch) const {
    auto* carry = reinterpret_cast<float*>(scratch);
    auto* sum = reinterpret_cast<float*>(scratch + carry_bytes_);
    AttnRowSums sums[kMaxSources];
    OnlineSoftmax softmax;
    for (RowPipe pipe(sources_, stream); !pipe.done(); pipe.Advance()) {
      const bool score = pipe.read().present();
      for (int g = 0; g < (score ? groups_.count : 1); ++g) {
        Group cached, read, next;
        if (g > 0) cached = GroupOf(pipe.ReadRows(0), g - 1);
        if (g == 0 && pipe.cached().present()) {
          cached = GroupOf(pipe.CachedRows(0), groups_.count - 1);
        }
        if (score) {
          read = GroupOf(pipe.ReadRows(0), g);
          next = g + 1 < groups_.count ? GroupOf(pipe.ReadRows(0), g + 1)
                                       : GroupOf(pipe.NextRows(0), 0);
        }
        AddAndScore(cached, softmax.weights, sum, read, next, query, carry, sums);
        if (g == 0 && pipe.cached().present()) {
          void* out = nullptr;
          h_.Rows(pipe.cached().index, &out);
          Mix(sum, softmax.total, 0, d_, out);
          EndToken(pipe.cached().index, &softmax);
        }
        if (score) TakeGroup(pipe.read().index, read, sums, &softmax, sum);
      }
    }
  }

  // Either group may be empty. They are taken side by side as far as both have rows.
  void AddAndScore(const Group& cached, const float* weights, float* sum, const Group& read,
                   const Group& next, const float* query, float* carry, AttnRowSums* sums) const {
    const void* part[kMaxSources];
    const std::int64_t whole = d_ / 32 * 32;
    const std::int64_t rest = d_ - whole;
    const int both = whole > 0 ? std::min(cached.count, read.count) : 0;
    const bool add = cached.first > 0;
    std::fill_n(carry, read.count * kAttnCarry, 0.0f);
    if (both > 0) {
      // A smaller group comes after a larger one of the same token: there are rows before it.
      const void* const* ahead = next.rows - std::max(both - next.count, 0);
      pipe_kernels_.dots_and_sum_packed(
          {read.rows, both, query, nullptr, norm_, whole, carry, nullptr, ahead},
          {cached.rows, weights, both, whole, add, sum});
    }
    if (both < cached.count && whole > 0) {
      packed_.sum_packed({Part(cached, both, 0, part), weights + both, cached.count - both, whole,
                          add || both > 0, sum});
    }
    if (cached.count > 0 && rest > 0) {
      packed_.sum_packed(
          {Part(cached, 0, whole, part), weights, cached.count, rest, add, sum + whole});
    }
    if (both < read.count && whole > 0) {
      kernels_.dots({Part(read, both, 0, part), read.count - both, query, nullptr, norm_, whole,
                     carry + both * kAttnCarry, nullptr});
    }
    if (read.count > 0) {
      kernels_.dots({Part(read, 0, whole, part), read.count, query + whole, nullptr, norm_, rest,
                     carry, sums});
    }
  }

  // The scores of a group that was read, and its weights.
  void TakeGroup(std::int64_t t, const Group& group, const AttnRowSums* sums,
                 OnlineSoftmax* softmax, float* sum) const {
    for (int l = 0; l < group.count; ++l) {
      softmax->scores[group.first + l] = Score(t, group.first + l, sums[l]);
    }
    const float factor = softmax->Take(kernels_, group.first, group.count);
    if (group.first == 0 || factor == 1) return;
    const void* self = sum;
    floats_.sum_packed({&self, &factor, 1, PackedLength(d_), false, sum});
  }

  // h, elements [begin, begin + length).
  void Mix(const float* sum, float total, std::int64_t begin, std::int64_t length,
           void* out) const {
    const float* vector = sum + begin;
    const float weight = 1 / total;
    packed_.mix({&vector, &weight, 1, nullptr, 0, length, out});
  }

  void EndToken(std::int64_t t, OnlineSoftmax* softmax) const {
    if (alpha_cache_.defined()) Softmax(t, softmax->scores);
    softmax->largest = -INFINITY;
    softmax->total = 0;
  }

  void RunStagedOnline(std::int64_t t, const float* query, std::byte* scratch) const {
    const void* rows[kMaxSources];
    AttnRowSums sums[kMaxSources];
    OnlineSoftmax softmax;
    auto* carry = reinterpret_cast<float*>(scratch);
    auto* sum = reinterpret_cast<float*>(scratch + carry_bytes_);
    std::byte* pieces = scratch + carry_bytes_ + sum_bytes_;
    std::byte* out_piece = pieces + AlignUp(sources_.piece_bytes());
    for (int g = 0; g < groups_.count; ++g) {
      const Group group = GroupOf(rows, g);
      const auto for_each_piece = [&](const auto& run) {
        for (std::int64_t begin = 0; begin < d_; begin += kAttnPiece) {
          const std::int64_t length = std::min(kAttnPiece, d_ - begin);
          sources_.Gather(t, begin, length, pieces, rows, group.first, group.count);
          run(begin, length);
        }
      };
      std::fill_n(carry, group.count * kAttnCarry, 0.0f);
      for_each_piece([&](std::int64_t begin, std::int64_t length) {
        kernels_.dots({rows, group.count, query + begin, nullptr, norm_, length, carry, sums});
      });
      TakeGroup(t, group, sums, &softmax, sum);
      for_each_piece([&](std::int64_t begin, std::int64_t length) {
        packed_.sum_packed({rows, softmax.weights, group.count, length, g > 0, sum + begin});
      });
    }
    for (std::int64_t begin = 0; begin < d_; begin += kAttnPiece) {
      const std::int64_t length = std::min(kAttnPiece, d_ - begin);
      void* out = nullptr;
      h_.Open(t, begin, out_piece, &out);
      Mix(sum, softmax.total, begin, length, out);
      h_.Scatter(t, begin, length, &out);
    }
    EndToken(t, &softmax);
  }

  void RunStaged(std::int64_t t, const float* query, std::byte* scratch) const {
    const int count = sources_.count();
    const void* rows[kMaxSources];
    AttnRowSums sums[kMaxSources];
    float alpha[kMaxSources] = {};
    auto* carry = reinterpret_cast<float*>(scratch);
    std::byte* pieces = scratch + carry_bytes_ + sum_bytes_;
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
  OnlineGroups groups_;
  AttnPackedKernels packed_, floats_;
  std::size_t carry_bytes_ = 0, sum_bytes_ = 0, slot_bytes_ = 0;
};

}  // namespace

Status Prepare(const BlockAttnResArgs& args, Plan* plan, const Context& context) {
  const TensorView main = args.blocks.empty() ? TensorView() : args.blocks[0];
  return PreparePlan<ForwardPlan>("block_attn_res", args, main, true, &BlockAttnResReference,
                                  Shapes(args), plan, context);
}

}  // namespace anabranch
