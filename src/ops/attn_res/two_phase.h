// What the plans of the two-phase operators have in common.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_TWO_PHASE_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_TWO_PHASE_H_

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/core/parallel.h"
#include "src/core/plan_impl.h"
#include "src/core/tokens.h"
#include "src/kernels/attn_packed.h"
#include "src/kernels/attn_queries.h"
#include "src/kernels/attn_residual.h"
#include "src/ops/attn_res/params.h"
#include "src/ops/attn_res/sources.h"

namespace anabranch {

class TwoPhasePlan : public PlanImpl {
 protected:
  template <class Args>
  TwoPhasePlan(const Args& a, DType dtype, std::int64_t tokens, std::int64_t d, Target target)
      : dtype_(dtype),
        tokens_(tokens),
        d_(d),
        kernels_(GetAttnResidualKernels(dtype, target)),
        packed_(GetAttnPackedKernels(dtype, target)),
        query_(GetAttnQueryKernels(dtype, target)),
        scale_(static_cast<float>(a.scale)),
        eps_(static_cast<float>(a.rmsnorm_eps)),
        norm_(a.enable_rmsnorm),
        vector_bytes_(AlignUp(static_cast<std::size_t>(PackedLength(d)) * sizeof(float))) {
    info.target = kernels_.target;
  }

  std::int64_t vector_floats() const {
    return static_cast<std::int64_t>(vector_bytes_ / sizeof(float));
  }

  float Rms(float squares) const {
    return norm_ ? std::sqrt(squares / static_cast<float>(d_) + eps_) : 1.0f;
  }

  // Scratch of `sources` for ForPieces.
  static std::size_t PieceBytes(const Sources& sources) {
    return sources.dense() ? 0 : AlignUp(sources.piece_bytes());
  }

  // Calls body(rows, begin, length) for the whole rows of a token, or piece by piece where they are
  // not dense along D.
  template <class Body>
  void ForPieces(const Sources& sources, std::int64_t t, std::byte* scratch,
                 const Body& body) const {
    const void* rows[kMaxSources];
    if (sources.dense()) {
      sources.Rows(t, rows);
      body(rows, std::int64_t{0}, d_);
      return;
    }
    for (std::int64_t begin = 0; begin < d_; begin += kAttnPiece) {
      const std::int64_t length = std::min(kAttnPiece, d_ - begin);
      sources.Gather(t, begin, length, scratch, rows);
      body(rows, begin, length);
    }
  }

  // An FP32 row of a token, packed; a dense one of the next token is fetched meanwhile.
  void PackToken(const TokenRows& rows, std::int64_t t, float* packed) const {
    const auto row = [&rows](std::int64_t token) {
      return reinterpret_cast<const float*>(rows.Token(token));
    };
    if (rows.stride1 == 1) {
      return packed_.pack({row(t), t + 1 < tokens_ ? row(t + 1) : nullptr, d_, packed});
    }
    PackRow(row(t), rows.stride1, d_, dtype_, packed);
  }

  // The other way round.
  void UnpackToken(const float* packed, const TokenRows& rows, std::int64_t t) const {
    auto* row = reinterpret_cast<float*>(rows.Token(t));
    if (rows.stride1 == 1) return packed_.unpack({packed, d_, row, info.streaming});
    UnpackRow(packed, d_, dtype_, row, rows.stride1);
  }

  // Sums of all rows of a token with `query`; `carry` is scratch of CarryBytes. Rows that are dense
  // are fetched for the next token meanwhile.
  void Dots(const Sources& sources, std::int64_t t, const float* query, bool squares,
            std::byte* scratch, float* carry, AttnRowSums* out) const {
    const int count = sources.count();
    float* keep = sources.dense() ? nullptr : carry;
    if (keep != nullptr) std::fill_n(keep, count * kAttnCarry, 0.0f);
    const void* next[kMaxSources];
    const bool fetch = sources.dense() && t + 1 < tokens_;
    if (fetch) sources.Rows(t + 1, next);
    ForPieces(sources, t, scratch,
              [&](const void* const* rows, std::int64_t begin, std::int64_t length) {
                kernels_.dots({rows, count, query + begin, nullptr, squares, length, keep, out,
                               fetch ? next : nullptr});
              });
  }
  static std::size_t CarryBytes(const Sources& sources) {
    return sources.dense() ? 0
                           : AlignUp(static_cast<std::size_t>(sources.count()) * kAttnCarry * 4);
  }

  // acc (packed) = (add ? acc : 0) + sum_l weights[l] * row l of token t
  void SumRows(const Sources& sources, std::int64_t t, const float* weights, bool add,
               std::byte* scratch, float* acc) const {
    ForPieces(sources, t, scratch,
              [&](const void* const* rows, std::int64_t begin, std::int64_t length) {
                packed_.sum_packed({rows, weights, sources.count(), length, add, acc + begin});
              });
  }

  DType dtype_;
  std::int64_t tokens_;
  std::int64_t d_;
  AttnResidualKernels kernels_;
  AttnPackedKernels packed_;
  AttnQueryKernels query_;
  float scale_, eps_;
  bool norm_;
  std::size_t vector_bytes_;
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_TWO_PHASE_H_
