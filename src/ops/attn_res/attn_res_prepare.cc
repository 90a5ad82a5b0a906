// attn_res_prepare and its backward: plan and run.
#include <cfloat>

#include "src/core/check.h"
#include "src/ops/attn_res/attn_res.h"
#include "src/ops/attn_res/two_phase.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

// Elements of gradient rows that are computed for all rows before the next ones are.
constexpr std::int64_t kMixPiece = 256;

template <class Args>
DType ActivationOf(const Args& a) {
  return a.blocks.empty() ? a.queries.dtype : a.blocks[0].dtype;
}

// Of a tensor [S, *, D].
std::int64_t TokensOf(const TensorView& o) {
  const TensorView part = QueryPart(o, 0);
  return CountTokens(part.sizes, part.rank() - 1);
}

// One query's o, m and l, or their gradients.
struct Part {
  Part(const TensorView& o_view, const TensorView& m_view, const TensorView& l_view, std::int64_t s)
      : o(QueryPart(o_view, s), 1), m(QueryPart(m_view, s), 0), l(QueryPart(l_view, s), 0) {}
  TokenRows o, m, l;
};

// gamma: [D] or [S, D].
ParamRow GammaOf(const TensorView& gamma, std::int64_t s) {
  const bool one_each = gamma.defined() && gamma.rank() == 2 && gamma.sizes[0] > 1;
  return ParamRow(gamma, one_each ? s : 0);
}

class PreparePlanBase : public TwoPhasePlan {
 protected:
  template <class Args>
  PreparePlanBase(const Args& a, const TensorView& o, const TensorView& m, const TensorView& l,
                  Target target)
      : TwoPhasePlan(a, ActivationOf(a), TokensOf(o), a.queries.sizes[1], target),
        sources_(a.blocks, TensorView()),
        queries_(a.queries.sizes[0]) {
    for (std::int64_t s = 0; s < queries_; ++s) {
      parts_.emplace_back(o, m, l, s);
      w_.emplace_back(a.queries, s);
      gamma_.push_back(GammaOf(norm_ ? a.rmsnorm_gamma : TensorView(), s));
    }
    info.kernel = sources_.dense() ? "tiles of queries over a cached token" : "staged pieces";
  }

  void PackQueries(float* packed) const {
    for (std::int64_t s = 0; s < queries_; ++s) {
      const auto i = static_cast<std::size_t>(s);
      PackQuery(w_[i], gamma_[i], scale_, d_, dtype_, packed + s * vector_floats());
    }
  }

  Sources sources_;
  std::int64_t queries_;
  std::vector<Part> parts_;
  std::vector<ParamRow> w_, gamma_;
};

class ForwardPlan : public PreparePlanBase {
 public:
  ForwardPlan(const AttnResPrepareArgs& a, Target target, const Context& context)
      : PreparePlanBase(a, a.o, a.m, a.l, target) {
    const double bytes =
        static_cast<double>(d_) * (static_cast<double>(DTypeSize(dtype_)) * sources_.count() +
                                   4.0 * static_cast<double>(queries_));
    info.tile = TokensPerItem(context, tokens_, bytes);
    info.work_items = CeilDiv(tokens_, info.tile);
    info.threads = ThreadsForBytes(context, info.work_items, bytes * static_cast<double>(tokens_));
    for (const Part& part : parts_) whole_ = whole_ && part.o.stride1 == 1;
    info.streaming = whole_ && 4.0 * static_cast<double>(queries_ * tokens_ * d_) >
                                   static_cast<double>(StreamingThreshold());
    const auto queries = static_cast<std::size_t>(queries_);
    scores_bytes_ = AlignUp(queries * static_cast<std::size_t>(sources_.count()) * sizeof(float));
    slot_bytes_ = PieceBytes(sources_) + CarryBytes(sources_) + (1 + kQueryCarry) * scores_bytes_ +
                  AlignUp(queries * sizeof(float*)) + (whole_ ? 0 : queries * vector_bytes_);
    info.workspace_bytes =
        vector_bytes_ * queries + slot_bytes_ * static_cast<std::size_t>(info.threads);
  }

  void Run(std::byte* workspace, const Context& context) const override {
    auto* queries = reinterpret_cast<float*>(workspace);
    std::byte* slots = workspace + vector_bytes_ * static_cast<std::size_t>(queries_);
    PackQueries(queries);
    ForEachItem(context, info.threads, info.work_items, [&](int slot, std::int64_t item) {
      const Scratch scratch = Cut(slots + slot_bytes_ * static_cast<std::size_t>(slot));
      const std::int64_t end = std::min(tokens_, (item + 1) * info.tile);
      for (std::int64_t t = item * info.tile; t < end; ++t) RunToken(t, queries, scratch);
      if (info.streaming) kernels_.flush();
    });
  }

 private:
  // Parts of a slot's scratch.
  struct Scratch {
    std::byte* pieces;
    float* carry;
    float* p;            // [S][L]
    float* query_carry;  // [S][L][kQueryCarry]
    float** o;           // [S]
    float* staged;       // [S][D] of outputs that are not dense along D
  };

  Scratch Cut(std::byte* at) const {
    Scratch x;
    x.pieces = at;
    at += PieceBytes(sources_);
    x.carry = reinterpret_cast<float*>(at);
    at += CarryBytes(sources_);
    x.p = reinterpret_cast<float*>(at);
    at += scores_bytes_;
    x.query_carry = reinterpret_cast<float*>(at);
    at += kQueryCarry * scores_bytes_;
    x.o = reinterpret_cast<float**>(at);
    at += AlignUp(static_cast<std::size_t>(queries_) * sizeof(float*));
    x.staged = reinterpret_cast<float*>(at);
    return x;
  }

  void RunToken(std::int64_t t, const float* queries, const Scratch& x) const {
    Score(t, queries, x);
    ForPieces(sources_, t, x.pieces,
              [&](const void* const* rows, std::int64_t begin, std::int64_t length) {
                for (std::int64_t s = 0; s < queries_; ++s) {
                  const Part& part = parts_[static_cast<std::size_t>(s)];
                  x.o[s] = (whole_ ? reinterpret_cast<float*>(part.o.Token(t))
                                   : x.staged + s * vector_floats()) +
                           begin;
                }
                query_.sums({rows, sources_.count(), x.p, queries_, length, x.o, info.streaming});
              });
    for (std::int64_t s = 0; !whole_ && s < queries_; ++s) {
      const Part& part = parts_[static_cast<std::size_t>(s)];
      CopyStrided(part.o.Token(t), part.o.stride1, x.staged + s * vector_floats(), 1, d_,
                  sizeof(float));
    }
  }

  // m, l, and the weights x.p of all queries.
  void Score(std::int64_t t, const float* queries, const Scratch& x) const {
    const int count = sources_.count();
    AttnRowSums sums[kMaxSources];
    float rms[kMaxSources];
    Dots(sources_, t, queries, norm_, x.pieces, x.carry, sums);
    for (int l = 0; l < count; ++l) rms[l] = Rms(sums[l].squares);
    std::fill_n(x.query_carry, queries_ * count * kQueryCarry, 0.0f);
    ForPieces(sources_, t, x.pieces,
              [&](const void* const* rows, std::int64_t begin, std::int64_t length) {
                query_.dots({rows, count, queries + begin, vector_floats(), queries_, length,
                             x.query_carry, begin + length == d_ ? x.p : nullptr});
              });
    for (std::int64_t s = 0; s < queries_; ++s) {
      const Part& part = parts_[static_cast<std::size_t>(s)];
      float* p = x.p + s * count;
      for (int l = 0; l < count; ++l) p[l] /= rms[l];
      const float largest = count > 0 ? *std::max_element(p, p + count) : -FLT_MAX;
      kernels_.exp_minus(p, largest, count, p);
      float sum = 0;
      for (int l = 0; l < count; ++l) sum += p[l];
      part.m.At<float>(t) = largest;
      part.l.At<float>(t) = sum;
    }
  }

  bool whole_ = true;
  std::size_t scores_bytes_ = 0, slot_bytes_ = 0;
};

class BackwardPlan : public PreparePlanBase {
 public:
  BackwardPlan(const AttnResPrepareBackwardArgs& a, Target target, const Context& context)
      : PreparePlanBase(a, a.grad_o, a.grad_m, a.grad_l, target),
        grads_(a.grad_blocks, TensorView()),
        chunks_(tokens_),
        shared_gamma_(a.rmsnorm_gamma.defined() &&
                      (a.rmsnorm_gamma.rank() == 1 || a.rmsnorm_gamma.sizes[0] == 1)) {
    for (std::int64_t s = 0; s < queries_; ++s) {
      grad_w_.emplace_back(a.grad_queries, s);
      const bool own = !shared_gamma_ || s == 0;
      grad_gamma_.push_back(own ? GammaOf(a.grad_rmsnorm_gamma, s) : ParamRow());
    }
    const double bytes =
        static_cast<double>(d_) * (2.0 * static_cast<double>(DTypeSize(dtype_)) * sources_.count() +
                                   4.0 * static_cast<double>(queries_));
    info.tile = chunks_.size;
    info.work_items = chunks_.count;
    info.threads = ThreadsForBytes(context, info.work_items, bytes * static_cast<double>(tokens_));
    const auto queries = static_cast<std::size_t>(queries_);
    const auto count = static_cast<std::size_t>(sources_.count());
    weight_bytes_ = AlignUp(count * (2 * queries + 1) * sizeof(float));
    mix_bytes_ = AlignUp(2 * queries * sizeof(float)) + AlignUp(2 * queries * sizeof(float*));
    slot_bytes_ = vector_bytes_ * queries + weight_bytes_ + query_carry_bytes() + mix_bytes_ +
                  PieceBytes(sources_) + CarryBytes(sources_) + PieceBytes(grads_);
    info.workspace_bytes = vector_bytes_ * queries * static_cast<std::size_t>(1 + chunks_.count) +
                           shared_bytes() + slot_bytes_ * static_cast<std::size_t>(info.threads);
  }

  void Run(std::byte* workspace, const Context& context) const override {
    auto* queries = reinterpret_cast<float*>(workspace);
    const std::int64_t group = queries_ * vector_floats();
    float* sums = queries + group;
    float* shared = sums + group * chunks_.count;
    std::byte* slots = reinterpret_cast<std::byte*>(shared) + shared_bytes();
    PackQueries(queries);
    if (chunks_.count == 0 || sources_.count() == 0) {
      StoreGrads(nullptr, shared);
      return;
    }
    ForEachItem(context, info.threads, chunks_.count, [&](int slot, std::int64_t item) {
      float* u = sums + item * group;
      std::fill_n(u, group, 0.0f);
      std::byte* scratch = slots + slot_bytes_ * static_cast<std::size_t>(slot);
      const std::int64_t end = std::min(tokens_, (item + 1) * chunks_.size);
      for (std::int64_t t = item * chunks_.size; t < end; ++t) RunToken(t, queries, u, scratch);
    });
    SumChunks(sums, chunks_.count, group, group, context, info.threads);
    StoreGrads(sums, shared);
  }

 private:
  std::size_t shared_bytes() const { return shared_gamma_ ? 2 * vector_bytes_ : 0; }
  std::size_t query_carry_bytes() const {
    return AlignUp(static_cast<std::size_t>(queries_ * sources_.count()) * kQueryCarry *
                   sizeof(float));
  }

  // Parts of a slot's scratch.
  struct Scratch {
    float* grad_o;          // [S] packed vectors
    float* p;               // [S][L]
    float* t;               // [S][L]
    float* c;               // [L], summed over queries
    float* query_carry;     // [S][L][kQueryCarry]
    float* mix_weights;     // [2 S]
    const float** vectors;  // [2 S]
    std::byte* pieces;
    float* carry;
    std::byte* out_pieces;
  };

  Scratch Cut(std::byte* at) const {
    Scratch x;
    const auto take = [&at](std::size_t bytes) {
      std::byte* from = at;
      at += bytes;
      return from;
    };
    const std::int64_t count = sources_.count();
    x.grad_o = reinterpret_cast<float*>(take(vector_bytes_ * static_cast<std::size_t>(queries_)));
    x.p = reinterpret_cast<float*>(take(weight_bytes_));
    x.t = x.p + queries_ * count;
    x.c = x.t + queries_ * count;
    x.query_carry = reinterpret_cast<float*>(take(query_carry_bytes()));
    x.mix_weights = reinterpret_cast<float*>(
        take(AlignUp(2 * static_cast<std::size_t>(queries_) * sizeof(float))));
    x.vectors = reinterpret_cast<const float**>(
        take(AlignUp(2 * static_cast<std::size_t>(queries_) * sizeof(float*))));
    x.pieces = take(PieceBytes(sources_));
    x.carry = reinterpret_cast<float*>(take(CarryBytes(sources_)));
    x.out_pieces = take(PieceBytes(grads_));
    return x;
  }

  // out[s][l] = vector s . row l, of packed vectors.
  void DotAll(std::int64_t t, const float* vectors, const Scratch& x, float* out) const {
    const int count = sources_.count();
    std::fill_n(x.query_carry, queries_ * count * kQueryCarry, 0.0f);
    ForPieces(sources_, t, x.pieces,
              [&](const void* const* rows, std::int64_t begin, std::int64_t length) {
                query_.dots({rows, count, vectors + begin, vector_floats(), queries_, length,
                             x.query_carry, begin + length == d_ ? out : nullptr});
              });
  }

  // The weights of query s in all gradient rows of a token. x.p and x.t hold the rows' products
  // with the query and with grad_o, and then the weights.
  void Weigh(std::int64_t t, std::int64_t s, const float* rms, const Scratch& x) const {
    const int count = sources_.count();
    const Part& part = parts_[static_cast<std::size_t>(s)];
    float score[kMaxSources];
    float* p = x.p + s * count;
    float* weights = x.t + s * count;
    for (int l = 0; l < count; ++l) score[l] = p[l] / rms[l];
    const auto top = static_cast<int>(std::max_element(score, score + count) - score);
    kernels_.exp_minus(score, score[top], count, p);
    const float grad_l = part.l.At<float>(t);
    float sum = 0;
    for (int l = 0; l < count; ++l) {
      weights[l] = p[l] * (weights[l] + grad_l);
      sum += weights[l];
    }
    // The maximum moves with its source, and all weights with the maximum.
    weights[top] += part.m.At<float>(t) - sum;
    for (int l = 0; l < count; ++l) {
      weights[l] /= rms[l];
      x.c[l] += weights[l] * (score[l] / (static_cast<float>(d_) * rms[l]));
    }
  }

  void RunToken(std::int64_t t, const float* queries, float* u, std::byte* scratch) const {
    const int count = sources_.count();
    const Scratch x = Cut(scratch);
    AttnRowSums sums[kMaxSources];
    float rms[kMaxSources];
    Dots(sources_, t, queries, norm_, x.pieces, x.carry, sums);
    for (int l = 0; l < count; ++l) rms[l] = Rms(sums[l].squares);
    std::fill_n(x.c, count, 0.0f);
    for (std::int64_t s = 0; s < queries_; ++s) {
      PackToken(parts_[static_cast<std::size_t>(s)].o, t, x.grad_o + s * vector_floats());
    }
    DotAll(t, queries, x, x.p);
    DotAll(t, x.grad_o, x, x.t);
    for (std::int64_t s = 0; s < queries_; ++s) {
      Weigh(t, s, rms, x);
      SumRows(sources_, t, x.t + s * count, true, x.pieces, u + s * vector_floats());
    }
    ForPieces(sources_, t, x.pieces,
              [&](const void* const* rows, std::int64_t begin, std::int64_t length) {
                MixRows(t, rows, begin, length, queries, x);
              });
  }

  // Gradient rows, elements [begin, begin + length).
  void MixRows(std::int64_t t, const void* const* rows, std::int64_t begin, std::int64_t length,
               const float* queries, const Scratch& x) const {
    const int count = sources_.count();
    void* out[kMaxSources];
    for (std::int64_t s = 0; s < queries_; ++s) {
      x.vectors[2 * s] = x.grad_o + s * vector_floats() + begin;
      x.vectors[2 * s + 1] = queries + s * vector_floats() + begin;
    }
    // Piece by piece, so that the 2 S vectors of a piece stay in cache for all rows; and the rows
    // written may be staged while those read are whole.
    const std::int64_t step = std::min(length, grads_.dense() ? kMixPiece : kAttnPiece);
    for (std::int64_t k = 0; k < length; k += step) {
      const std::int64_t piece = std::min(step, length - k);
      grads_.Open(t, begin + k, x.out_pieces, out);
      for (int l = 0; l < count; ++l) {
        for (std::int64_t s = 0; s < queries_; ++s) {
          x.mix_weights[2 * s] = x.p[s * count + l];
          x.mix_weights[2 * s + 1] = x.t[s * count + l];
        }
        const auto* row = static_cast<const std::byte*>(rows[l]) +
                          static_cast<std::size_t>(k) * DTypeSize(dtype_);
        packed_.mix(
            {x.vectors, x.mix_weights, 2 * queries_, norm_ ? row : nullptr, x.c[l], piece, out[l]});
      }
      grads_.Scatter(t, begin + k, piece, out);
      for (std::int64_t j = 0; j < 2 * queries_; ++j) x.vectors[j] += piece;
    }
  }

  // `sums`: one packed vector a query, or null if there is nothing to sum.
  void StoreGrads(const float* sums, float* shared) const {
    for (std::int64_t s = 0; s < queries_; ++s) {
      const auto i = static_cast<std::size_t>(s);
      StoreParamGrads({w_[i], gamma_[i], grad_w_[i], shared_gamma_ ? ParamRow() : grad_gamma_[i],
                       scale_, norm_},
                      sums != nullptr ? sums + s * vector_floats() : nullptr, d_, dtype_);
    }
    if (!shared_gamma_ || !grad_gamma_[0].defined()) return;
    // grad_gamma = sum over queries, in order, of (scale * w) * u.
    float* total = shared;
    float* w = shared + vector_floats();
    std::fill_n(total, d_, 0.0f);
    for (std::int64_t s = 0; sums != nullptr && norm_ && s < queries_; ++s) {
      w_[static_cast<std::size_t>(s)].Load(0, d_, w);
      const float* u = sums + s * vector_floats();
      for (std::int64_t k = 0; k < d_; ++k) {
        total[k] += scale_ * w[k] * u[PackedIndex(dtype_, k)];
      }
    }
    grad_gamma_[0].Store(0, d_, total);
  }

  Sources grads_;
  TokenChunks chunks_;
  bool shared_gamma_;
  std::vector<ParamRow> grad_w_, grad_gamma_;
  std::size_t weight_bytes_ = 0, mix_bytes_ = 0, slot_bytes_ = 0;
};

template <class Args>
auto Shapes(const Args& args) {
  return [count = args.blocks.size(), queries = args.queries, norm = args.enable_rmsnorm] {
    return "N=" + std::to_string(count) + " " + Describe("queries", queries) +
           (norm ? "norm" : "no norm");
  };
}

}  // namespace

Status Prepare(const AttnResPrepareArgs& args, Plan* plan, const Context& context) {
  return PreparePlan<ForwardPlan>("attn_res_prepare", args, args.o, true, &AttnResPrepareReference,
                                  Shapes(args), plan, context);
}

// Not done without tokens: the parameters' gradients are zeroed.
Status Prepare(const AttnResPrepareBackwardArgs& args, Plan* plan, const Context& context) {
  const TensorView& main = args.blocks.empty() ? args.queries : args.blocks[0];
  return PreparePlan<BackwardPlan>("attn_res_prepare_backward", args, main, false,
                                   &AttnResPrepareBackwardReference, Shapes(args), plan, context);
}

}  // namespace anabranch
