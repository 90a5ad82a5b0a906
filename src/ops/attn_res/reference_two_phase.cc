// attn_res_prepare and attn_res_merge as they are defined. Every output is overwritten.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "src/kernels/attn_residual.h"
#include "src/ops/attn_res/attn_res.h"
#include "src/ops/attn_res/reference.h"

namespace anabranch {

using attn_reference::List;
using attn_reference::SourceRows;
using attn_reference::Vector;

namespace {

// Gamma of query s: absent or without the norm ones.
Vector GammaOf(const TensorView& gamma, bool norm, std::int64_t s) {
  if (!norm || !gamma.defined()) return Vector(TensorView());
  return Vector(gamma, gamma.rank() == 2 && gamma.sizes[0] > 1 ? s : 0);
}

// The score of row v of token t, and its rms.
struct Score {
  double s, rms;
};
template <class Args>
Score ScoreOf(const Args& a, const Vector& w, const Vector& gamma, const TokenRows& v,
              std::int64_t t, std::int64_t d) {
  double squares = 0, dot = 0;
  for (std::int64_t k = 0; k < d; ++k) {
    const double value = v.At<double>(t, k);
    squares += value * value;
    dot += gamma.Or1(k) * w[k] * value;
  }
  const double rms =
      a.enable_rmsnorm ? std::sqrt(squares / static_cast<double>(d) + a.rmsnorm_eps) : 1;
  return {a.scale * dot / rms, rms};
}

// Adds what ds, the gradient of a score, means for v, the query and gamma.
template <class Args>
void AddScoreGradient(const Args& a, const Score& score, double ds, const Vector& w,
                      const Vector& gamma, const TokenRows& v, std::int64_t t, std::int64_t d,
                      const TokenRows& dv, const Vector& dw, const Vector& dgamma) {
  const double scaled = ds / score.rms;
  for (std::int64_t k = 0; k < d; ++k) {
    const double value = v.At<double>(t, k);
    double direction = a.scale * w[k] * gamma.Or1(k);
    if (a.enable_rmsnorm) direction -= value * score.s / (static_cast<double>(d) * score.rms);
    dv.At<double>(t, k) += scaled * direction;
    dw[k] += a.scale * gamma.Or1(k) * scaled * value;
    if (dgamma.defined() && a.enable_rmsnorm) dgamma[k] += a.scale * w[k] * scaled * value;
  }
}

void Zero(const TensorView& param) {
  if (!param.defined()) return;
  const std::int64_t rows = param.rank() == 2 ? param.sizes[0] : 1;
  for (std::int64_t s = 0; s < rows; ++s) {
    const Vector row(param, s);
    for (std::int64_t k = 0; k < param.sizes[param.rank() - 1]; ++k) row[k] = 0;
  }
}

}  // namespace

void AttnResPrepareReference(const AttnResPrepareArgs& a) {
  const SourceRows v = List(a.blocks, TensorView());
  const std::int64_t d = a.queries.sizes[1];
  double p[kMaxSources] = {};
  for (std::int64_t query = 0; query < a.queries.sizes[0]; ++query) {
    const TensorView part = QueryPart(a.o, query);
    const TokenRows o(part, 1), m(QueryPart(a.m, query), 0), l(QueryPart(a.l, query), 0);
    const Vector w(a.queries, query);
    const Vector gamma = GammaOf(a.rmsnorm_gamma, a.enable_rmsnorm, query);
    const std::int64_t tokens = CountTokens(part.sizes, part.rank() - 1);
    for (std::int64_t t = 0; t < tokens; ++t) {
      double largest = v.size() == 0 ? -FLT_MAX : -INFINITY;
      for (std::size_t i = 0; i < v.size(); ++i) {
        p[i] = ScoreOf(a, w, gamma, v[i], t, d).s;
        largest = std::max(largest, p[i]);
      }
      double sum = 0;
      for (std::size_t i = 0; i < v.size(); ++i) sum += p[i] = std::exp(p[i] - largest);
      m.At<double>(t) = largest;
      l.At<double>(t) = sum;
      for (std::int64_t k = 0; k < d; ++k) {
        double mix = 0;
        for (std::size_t i = 0; i < v.size(); ++i) mix += p[i] * v[i].At<double>(t, k);
        o.At<double>(t, k) = mix;
      }
    }
  }
}

void AttnResPrepareBackwardReference(const AttnResPrepareBackwardArgs& a) {
  const SourceRows v = List(a.blocks, TensorView());
  const SourceRows dv = List(a.grad_blocks, TensorView());
  const std::int64_t d = a.queries.sizes[1];
  const TensorView first = QueryPart(a.grad_o, 0);
  const std::int64_t tokens = CountTokens(first.sizes, first.rank() - 1);
  for (const TokenRows& rows : dv) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t k = 0; k < d; ++k) rows.At<double>(t, k) = 0;
    }
  }
  Zero(a.grad_queries);
  Zero(a.grad_rmsnorm_gamma);
  Score score[kMaxSources] = {};
  double p[kMaxSources] = {}, e[kMaxSources] = {};
  for (std::int64_t query = 0; query < a.queries.sizes[0]; ++query) {
    const TokenRows grad_o(QueryPart(a.grad_o, query), 1), grad_m(QueryPart(a.grad_m, query), 0);
    const TokenRows grad_l(QueryPart(a.grad_l, query), 0);
    const Vector w(a.queries, query), dw(a.grad_queries, query);
    const Vector gamma = GammaOf(a.rmsnorm_gamma, a.enable_rmsnorm, query);
    const Vector dgamma = GammaOf(a.grad_rmsnorm_gamma, true, query);
    for (std::int64_t t = 0; t < tokens && !v.size() == 0; ++t) {
      std::size_t top = 0;
      for (std::size_t i = 0; i < v.size(); ++i) {
        score[i] = ScoreOf(a, w, gamma, v[i], t, d);
        if (score[i].s > score[top].s) top = i;
      }
      double sum = 0;
      for (std::size_t i = 0; i < v.size(); ++i) {
        p[i] = std::exp(score[i].s - score[top].s);
        e[i] = grad_l.At<double>(t);
        for (std::int64_t k = 0; k < d; ++k) {
          e[i] += grad_o.At<double>(t, k) * v[i].At<double>(t, k);
        }
        sum += p[i] * e[i];
      }
      for (std::size_t i = 0; i < v.size(); ++i) {
        // The maximum moves with its source, and all weights with the maximum.
        const double by_max = i == top ? grad_m.At<double>(t) - sum : 0;
        for (std::int64_t k = 0; k < d; ++k) {
          dv[i].At<double>(t, k) += p[i] * grad_o.At<double>(t, k);
        }
        AddScoreGradient(a, score[i], p[i] * e[i] + by_max, w, gamma, v[i], t, d, dv[i], dw,
                         dgamma);
      }
    }
  }
}

void AttnResMergeReference(const AttnResMergeArgs& a) {
  const int leading = a.v.rank() - 1;
  const std::int64_t tokens = CountTokens(a.v.sizes, leading);
  const std::int64_t d = a.v.sizes[leading];
  const TokenRows o(a.o, 1), m(a.m, 0), l(a.l, 0), v(a.v, 1), h(a.h, 1);
  const Vector w(a.query);
  const Vector gamma = GammaOf(a.rmsnorm_gamma, a.enable_rmsnorm, 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double s = ScoreOf(a, w, gamma, v, t, d).s;
    const double largest = std::max(m.At<double>(t), s);
    const double by_old = std::exp(m.At<double>(t) - largest);
    const double by_new = std::exp(s - largest);
    const double sum = l.At<double>(t) * by_old + by_new;
    for (std::int64_t k = 0; k < d; ++k) {
      h.At<double>(t, k) = (o.At<double>(t, k) * by_old + v.At<double>(t, k) * by_new) / sum;
    }
  }
}

void AttnResMergeBackwardReference(const AttnResMergeBackwardArgs& a) {
  const int leading = a.v.rank() - 1;
  const std::int64_t tokens = CountTokens(a.v.sizes, leading);
  const std::int64_t d = a.v.sizes[leading];
  const TokenRows o(a.o, 1), m(a.m, 0), l(a.l, 0), v(a.v, 1), dh(a.grad_h, 1);
  const TokenRows grad_o(a.grad_o, 1), grad_m(a.grad_m, 0), grad_l(a.grad_l, 0);
  const TokenRows dv(a.grad_v, 1);
  const Vector w(a.query), dw(a.grad_query), dgamma(a.grad_rmsnorm_gamma);
  const Vector gamma = GammaOf(a.rmsnorm_gamma, a.enable_rmsnorm, 0);
  Zero(a.grad_query);
  Zero(a.grad_rmsnorm_gamma);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Score score = ScoreOf(a, w, gamma, v, t, d);
    const double largest = std::max(m.At<double>(t), score.s);
    const double by_old = std::exp(m.At<double>(t) - largest);
    const double by_new = std::exp(score.s - largest);
    const double sum = l.At<double>(t) * by_old + by_new;
    double dot_o = 0, dot_v = 0;
    for (std::int64_t k = 0; k < d; ++k) {
      dot_o += dh.At<double>(t, k) * o.At<double>(t, k);
      dot_v += dh.At<double>(t, k) * v.At<double>(t, k);
    }
    const double dot_h = (by_old * dot_o + by_new * dot_v) / sum;
    for (std::int64_t k = 0; k < d; ++k) {
      grad_o.At<double>(t, k) = dh.At<double>(t, k) * by_old / sum;
      dv.At<double>(t, k) = dh.At<double>(t, k) * by_new / sum;
    }
    grad_l.At<double>(t) = -by_old / sum * dot_h;
    const double ds = by_new * (dot_v - dot_h) / sum;
    grad_m.At<double>(t) = by_old * (dot_o - l.At<double>(t) * dot_h) / sum;
    AddScoreGradient(a, score, ds, w, gamma, v, t, d, dv, dw, dgamma);
  }
}

}  // namespace anabranch
