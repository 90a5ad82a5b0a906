// attn_res_merge and its backward: plan and run.
#include "src/core/check.h"
#include "src/core/half.h"
#include "src/ops/attn_res/attn_res.h"
#include "src/ops/attn_res/two_phase.h"
#include "src/ops/prepare.h"

namespace anabranch {
namespace {

std::vector<TensorView> One(const TensorView& t) { return {t}; }

class MergePlan : public TwoPhasePlan {
 protected:
  template <class Args>
  MergePlan(const Args& a, Target target)
      : TwoPhasePlan(a, a.v.dtype, CountTokens(a.v.sizes, a.v.rank() - 1),
                     a.v.sizes[a.v.rank() - 1], target),
        v_(One(a.v), TensorView()),
        o_(a.o, 1),
        m_(a.m, 0),
        l_(a.l, 0),
        w_(a.query),
        gamma_(norm_ ? a.rmsnorm_gamma : TensorView()) {}

  // What a score s makes of the old part (o, m, l) and of the new source.
  struct Weights {
    float old_part, new_part;
  };
  Weights Weigh(std::int64_t t, float s) const {
    const float m = m_.At<float>(t);
    const float scores[2] = {m, s};
    float parts[2];
    kernels_.exp_minus(scores, s > m ? s : m, 2, parts);
    const float sum = l_.At<float>(t) * parts[0] + parts[1];
    return {CleanNan(parts[0] / sum), CleanNan(parts[1] / sum)};
  }

  const float* O(std::int64_t t) const { return reinterpret_cast<const float*>(o_.Token(t)); }

  Sources v_;
  TokenRows o_, m_, l_;
  ParamRow w_, gamma_;
};

class ForwardPlan : public MergePlan {
 public:
  ForwardPlan(const AttnResMergeArgs& a, Target target, const Context& context)
      : MergePlan(a, target), h_(One(a.h), TensorView()) {
    const bool dense = v_.dense() && h_.dense();
    const double bytes =
        static_cast<double>(d_) * (2.0 * static_cast<double>(DTypeSize(dtype_)) + 4.0);
    info.tile = TokensPerItem(context, tokens_, bytes);
    info.work_items = CeilDiv(tokens_, info.tile);
    info.threads = ThreadsForBytes(context, info.work_items, bytes * static_cast<double>(tokens_));
    info.kernel = dense ? "whole rows" : "staged pieces";
    info.streaming =
        dense && static_cast<double>(DTypeSize(dtype_)) * static_cast<double>(tokens_ * d_) >
                     static_cast<double>(StreamingThreshold());
    slot_bytes_ =
        (o_.stride1 == 1 ? 0 : vector_bytes_) + PieceBytes(v_) + CarryBytes(v_) + PieceBytes(h_);
    info.workspace_bytes = vector_bytes_ + slot_bytes_ * static_cast<std::size_t>(info.threads);
  }

  void Run(std::byte* workspace, const Context& context) const override {
    auto* query = reinterpret_cast<float*>(workspace);
    PackQuery(w_, gamma_, scale_, d_, dtype_, query);
    ForEachItem(context, info.threads, info.work_items, [&](int slot, std::int64_t item) {
      std::byte* scratch = workspace + vector_bytes_ + slot_bytes_ * static_cast<std::size_t>(slot);
      const std::int64_t end = std::min(tokens_, (item + 1) * info.tile);
      for (std::int64_t t = item * info.tile; t < end; ++t) RunToken(t, query, scratch);
      if (info.streaming) kernels_.flush();
    });
  }

 private:
  void RunToken(std::int64_t t, const float* query, std::byte* scratch) const {
    std::byte* pieces = scratch;
    auto* carry = reinterpret_cast<float*>(pieces + PieceBytes(v_));
    std::byte* out_pieces = pieces + PieceBytes(v_) + CarryBytes(v_);
    AttnRowSums sums;
    Dots(v_, t, query, norm_, pieces, carry, &sums);
    const Weights weights = Weigh(t, sums.query / Rms(sums.squares));
    const float* o = O(t);
    if (o_.stride1 != 1) {
      auto* staged = reinterpret_cast<float*>(out_pieces + PieceBytes(h_));
      CopyStrided(staged, 1, o, o_.stride1, d_, sizeof(float));
      o = staged;
    }
    const bool whole = v_.dense() && h_.dense();
    for (std::int64_t begin = 0; begin < d_; begin += whole ? d_ : kAttnPiece) {
      const std::int64_t length = whole ? d_ : std::min(kAttnPiece, d_ - begin);
      const void* row = nullptr;
      void* out = nullptr;
      v_.Gather(t, begin, length, pieces, &row);
      h_.Open(t, begin, out_pieces, &out);
      query_.join({o + begin, weights.old_part, row, weights.new_part, length, out, info.streaming,
                   whole && t + 1 < tokens_ && o_.stride1 == 1 ? O(t + 1) : nullptr});
      h_.Scatter(t, begin, length, &out);
    }
  }

  Sources h_;
  std::size_t slot_bytes_ = 0;
};

class BackwardPlan : public MergePlan {
 public:
  BackwardPlan(const AttnResMergeBackwardArgs& a, Target target, const Context& context)
      : MergePlan(a, target),
        grad_h_(One(a.grad_h), TensorView()),
        grad_v_(One(a.grad_v), TensorView()),
        grad_o_(a.grad_o, 1),
        grad_m_(a.grad_m, 0),
        grad_l_(a.grad_l, 0),
        grad_w_(a.grad_query),
        grad_gamma_(a.grad_rmsnorm_gamma),
        chunks_(tokens_),
        whole_(v_.dense() && grad_h_.dense() && grad_v_.dense()) {
    const double bytes =
        static_cast<double>(d_) * (3.0 * static_cast<double>(DTypeSize(dtype_)) + 8.0);
    info.tile = chunks_.size;
    info.work_items = chunks_.count;
    info.threads = ThreadsForBytes(context, info.work_items, bytes * static_cast<double>(tokens_));
    info.kernel = whole_ ? "whole rows" : "staged pieces";
    info.streaming =
        whole_ && grad_o_.stride1 == 1 &&
        static_cast<double>(DTypeSize(dtype_) + sizeof(float)) * static_cast<double>(tokens_ * d_) >
            static_cast<double>(StreamingThreshold());
    piece_bytes_ = AlignUp(v_.piece_bytes());
    slot_bytes_ = vector_bytes_ + (whole_ ? 0 : 3 * piece_bytes_ + AlignUp(2 * kAttnCarry * 4));
    info.workspace_bytes = vector_bytes_ * static_cast<std::size_t>(1 + chunks_.count) +
                           slot_bytes_ * static_cast<std::size_t>(info.threads);
  }

  void Run(std::byte* workspace, const Context& context) const override {
    auto* query = reinterpret_cast<float*>(workspace);
    float* sums = query + vector_floats();
    std::byte* slots = workspace + vector_bytes_ * static_cast<std::size_t>(1 + chunks_.count);
    PackQuery(w_, gamma_, scale_, d_, dtype_, query);
    ForEachItem(context, info.threads, chunks_.count, [&](int slot, std::int64_t item) {
      float* u = sums + item * vector_floats();
      std::fill_n(u, vector_floats(), 0.0f);
      std::byte* scratch = slots + slot_bytes_ * static_cast<std::size_t>(slot);
      const std::int64_t end = std::min(tokens_, (item + 1) * chunks_.size);
      for (std::int64_t t = item * chunks_.size; t < end; ++t) RunToken(t, query, u, scratch);
      if (info.streaming) kernels_.flush();
    });
    SumChunks(sums, chunks_.count, vector_floats(), PackedLength(d_), context, info.threads);
    StoreParamGrads({w_, gamma_, grad_w_, grad_gamma_, scale_, norm_}, tokens_ > 0 ? sums : nullptr,
                    d_, dtype_);
  }

 private:
  // Calls body(v, dh, begin, length) for whole rows or their pieces.
  template <class Body>
  void ForRowPieces(std::int64_t t, std::byte* pieces, const Body& body) const {
    for (std::int64_t begin = 0; begin < d_; begin += whole_ ? d_ : kAttnPiece) {
      const std::int64_t length = whole_ ? d_ : std::min(kAttnPiece, d_ - begin);
      const void* v = nullptr;
      const void* dh = nullptr;
      v_.Gather(t, begin, length, pieces, &v);
      grad_h_.Gather(t, begin, length, pieces + piece_bytes_, &dh);
      body(v, dh, begin, length);
    }
  }

  void RunToken(std::int64_t t, const float* query, float* u, std::byte* scratch) const {
    auto* o = reinterpret_cast<float*>(scratch);
    std::byte* pieces = scratch + vector_bytes_;
    auto* carry = whole_ ? nullptr : reinterpret_cast<float*>(pieces + 3 * piece_bytes_);
    if (carry != nullptr) std::fill_n(carry, 2 * kAttnCarry, 0.0f);
    AttnRowSums by_v, by_o;
    PackToken(o_, t, o);
    const void* next_v = nullptr;
    const void* next_dh = nullptr;
    const bool fetch = whole_ && t + 1 < tokens_;
    if (fetch) {
      v_.Rows(t + 1, &next_v);
      grad_h_.Rows(t + 1, &next_dh);
    }
    ForRowPieces(
        t, pieces, [&](const void* v, const void* dh, std::int64_t begin, std::int64_t length) {
          kernels_.dots(
              {&v, 1, query + begin, dh, norm_, length, carry, &by_v, fetch ? &next_v : nullptr});
          kernels_.dots({&dh, 1, o + begin, nullptr, false, length,
                         carry != nullptr ? carry + kAttnCarry : nullptr, &by_o,
                         fetch ? &next_dh : nullptr});
        });
    const float rms = Rms(by_v.squares);
    const float score = by_v.query / rms;
    const Weights weights = Weigh(t, score);
    const float ds =
        weights.old_part * weights.new_part * (l_.At<float>(t) * by_v.grad - by_o.query);
    const float dot_h = weights.old_part * by_o.query + weights.new_part * by_v.grad;
    grad_m_.At<float>(t) = -ds;
    grad_l_.At<float>(t) = -weights.old_part * dot_h;
    const float step = CleanNan(ds / rms);
    const float back = CleanNan(step * (score / (static_cast<float>(d_) * rms)));
    ForRowPieces(
        t, pieces, [&](const void* v, const void* dh, std::int64_t begin, std::int64_t length) {
          void* out = nullptr;
          grad_v_.Open(t, begin, pieces + 2 * piece_bytes_, &out);
          kernels_.grad_rows({&v, dh, query + begin, &weights.new_part, &step,
                              norm_ ? &back : nullptr, 1, length, u + begin, &out, info.streaming});
          grad_v_.Scatter(t, begin, length, &out);
          packed_.sum_packed({&dh, &weights.old_part, 1, length, false, o + begin});
        });
    UnpackToken(o, grad_o_, t);
  }

  Sources grad_h_, grad_v_;
  TokenRows grad_o_, grad_m_, grad_l_;
  ParamRow grad_w_, grad_gamma_;
  TokenChunks chunks_;
  bool whole_;
  std::size_t piece_bytes_ = 0, slot_bytes_ = 0;
};

template <class Args>
auto Shapes(const Args& args) {
  return [v = args.v, norm = args.enable_rmsnorm] {
    return Describe("v", v) + (norm ? "norm" : "no norm");
  };
}

}  // namespace

Status Prepare(const AttnResMergeArgs& args, Plan* plan, const Context& context) {
  return PreparePlan<ForwardPlan>("attn_res_merge", args, args.v, true, &AttnResMergeReference,
                                  Shapes(args), plan, context);
}

// Not done without tokens: the parameters' gradients are zeroed.
Status Prepare(const AttnResMergeBackwardArgs& args, Plan* plan, const Context& context) {
  return PreparePlan<BackwardPlan>("attn_res_merge_backward", args, args.v, false,
                                   &AttnResMergeBackwardReference, Shapes(args), plan, context);
}

}  // namespace anabranch
