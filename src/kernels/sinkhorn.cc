// See sinkhorn.h. Compiled once per target.
#include "src/kernels/sinkhorn.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/sinkhorn.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "src/simd/dispatch.h"
#include "src/simd/exp-inl.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {
namespace {

constexpr int kMaxN = 16;

HWY_INLINE VecF LoadLanes(const float* base, std::int64_t index, std::size_t part) {
  return hn::LoadU(TagF(), base + index * kSinkhornLanes + part * kLanes);
}

HWY_INLINE void StoreLanes(VecF value, float* base, std::int64_t index, std::size_t part) {
  hn::StoreU(value, TagF(), base + index * kSinkhornLanes + part * kLanes);
}

// A sum's n divisions become one division and n multiplications where the reciprocal cannot
// overflow: four times fewer divisions for n = 4, which are what this kernel waits for.
template <bool kReciprocal>
struct Divisor {
  explicit HWY_INLINE Divisor(VecF sum) : value(kReciprocal ? hn::Div(SetF(1.0f), sum) : sum) {}
  HWY_INLINE VecF operator()(VecF x) const {
    return kReciprocal ? hn::Mul(x, value) : hn::Div(x, value);
  }
  VecF value;
};

// Below any sum of at least this eps a reciprocal is finite.
constexpr float kReciprocalEps = 1e-30f;

HWY_INLINE VecF Clamp(const SinkhornParams& p, VecF z) {
  if (!p.clamps) return z;
  const VecF low = SetF(p.clamp_low);
  const VecF high = SetF(p.clamp_high);
  z = hn::IfThenElse(hn::Lt(z, low), low, z);  // NaN compares false and stays
  return hn::IfThenElse(hn::Gt(z, high), high, z);
}

// Softmax of row i into m[i*n ...]; returns the sum of the exponentials.
HWY_INLINE VecF SoftmaxRow(const SinkhornForward& a, int i, int n, std::size_t part, VecF* m) {
  VecF* row = m + i * n;
  VecF top = Clamp(a.params, LoadLanes(a.z, i * n, part));
  row[0] = top;
  for (int j = 1; j < n; ++j) {
    row[j] = Clamp(a.params, LoadLanes(a.z, i * n + j, part));
    top = hn::Max(top, row[j]);
  }
  VecF sum = ZeroF();
  for (int j = 0; j < n; ++j) {
    row[j] = ExpF(hn::Sub(row[j], top));
    sum = hn::Add(sum, row[j]);
  }
  const Divisor<true> by(sum);  // the largest term is 1
  for (int j = 0; j < n; ++j) row[j] = by(row[j]);
  return sum;
}

// One normalisation of the lines of m: element k of line r is m[r * line + k * step].
template <bool kReciprocal>
HWY_INLINE void Normalise(VecF* m, int n, int line, int step, VecF eps, float* sums,
                          std::size_t part) {
  for (int r = 0; r < n; ++r) {
    VecF sum = m[r * line];
    for (int k = 1; k < n; ++k) sum = hn::Add(sum, m[r * line + k * step]);
    sum = hn::Add(sum, eps);
    if (sums != nullptr) StoreLanes(sum, sums, r, part);
    const Divisor<kReciprocal> by(sum);
    for (int k = 0; k < n; ++k) m[r * line + k * step] = by(m[r * line + k * step]);
  }
}

template <int N, bool kReciprocal>
HWY_INLINE void ForwardPart(const SinkhornForward& a, std::size_t part) {
  const int n = N > 0 ? N : a.params.n;
  const VecF eps = SetF(a.params.eps);
  VecF m[N > 0 ? N * N : kMaxN * kMaxN];
  const auto keep = [&](std::int64_t step) {
    for (int k = 0; a.norms != nullptr && k < n * n; ++k) {
      StoreLanes(m[k], a.norms, step * n * n + k, part);
    }
  };
  const auto sums = [&](std::int64_t step) {
    return a.sums != nullptr ? a.sums + step * n * kSinkhornLanes : nullptr;
  };
  for (int i = 0; i < n; ++i) {
    const VecF sum = SoftmaxRow(a, i, n, part, m);
    if (a.sums != nullptr) StoreLanes(sum, a.sums, i, part);
  }
  keep(0);
  for (int k = 0; k < n * n; ++k) m[k] = hn::Add(m[k], eps);
  Normalise<kReciprocal>(m, n, 1, n, eps, sums(1), part);
  keep(1);
  for (std::int64_t step = 2; step < 2 * a.params.num_iters; step += 2) {
    Normalise<kReciprocal>(m, n, n, 1, eps, sums(step), part);
    keep(step);
    Normalise<kReciprocal>(m, n, 1, n, eps, sums(step + 1), part);
    keep(step + 1);
  }
  for (int k = 0; k < n * n; ++k) StoreLanes(m[k], a.h_res, k, part);
}

template <int N>
void Forward(const SinkhornForward& a) {
  for (std::size_t part = 0; part < kParts; ++part) {
    if (a.params.eps >= kReciprocalEps) {
      ForwardPart<N, true>(a, part);
    } else {
      ForwardPart<N, false>(a, part);
    }
  }
}

// g of the lines of one step: g = (g - sum(g * M)) / S.
HWY_INLINE void BackStep(VecF* g, const VecF* m, int n, int line, int step, const float* sums,
                         std::size_t part) {
  for (int r = 0; r < n; ++r) {
    VecF dot = hn::Mul(g[r * line], m[r * line]);
    for (int k = 1; k < n; ++k) {
      dot = hn::MulAdd(g[r * line + k * step], m[r * line + k * step], dot);
    }
    const VecF sum = LoadLanes(sums, r, part);
    for (int k = 0; k < n; ++k) {
      g[r * line + k * step] = hn::Div(hn::Sub(g[r * line + k * step], dot), sum);
    }
  }
}

template <int N>
void Backward(const SinkhornBackward& a) {
  const int n = N > 0 ? N : a.params.n;
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF g[N > 0 ? N * N : kMaxN * kMaxN];
    VecF m[N > 0 ? N * N : kMaxN * kMaxN];
    for (int k = 0; k < n * n; ++k) g[k] = LoadLanes(a.grad, k, part);
    for (std::int64_t step = 2 * a.params.num_iters - 1; step >= 1; --step) {
      for (int k = 0; k < n * n; ++k) m[k] = LoadLanes(a.norms, step * n * n + k, part);
      const float* sums = a.sums + step * n * kSinkhornLanes;
      if (step % 2 == 1) {
        BackStep(g, m, n, 1, n, sums, part);
      } else {
        BackStep(g, m, n, n, 1, sums, part);
      }
    }
    for (int i = 0; i < n; ++i) {  // softmax, without eps
      VecF dot = ZeroF();
      for (int j = 0; j < n; ++j) {
        m[i * n + j] = LoadLanes(a.norms, i * n + j, part);
        dot = hn::MulAdd(g[i * n + j], m[i * n + j], dot);
      }
      for (int j = 0; j < n; ++j) {
        g[i * n + j] = hn::Mul(m[i * n + j], hn::Sub(g[i * n + j], dot));
      }
    }
    for (int k = 0; k < n * n; ++k) {
      if (a.params.clamps) {
        const VecF z = LoadLanes(a.z, k, part);
        const auto outside =
            hn::Or(hn::Lt(z, SetF(a.params.clamp_low)), hn::Gt(z, SetF(a.params.clamp_high)));
        g[k] = hn::IfThenZeroElse(outside, g[k]);
      }
      StoreLanes(g[k], a.grad_z, k, part);
    }
  }
}

template <int N>
SinkhornKernels Make(const char* name) {
  return {&Forward<N>, &Backward<N>, name, kThisTarget};
}

}  // namespace

SinkhornKernels SinkhornTable(int n) {
  if (n == 2) return Make<2>("n2");
  if (n == 4) return Make<4>("n4");
  return Make<0>("generic");
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {

HWY_EXPORT(SinkhornTable);

SinkhornKernels GetSinkhornKernels(int n, Target target) {
  return ANABRANCH_DISPATCH(SinkhornTable, target)(n);
}

}  // namespace anabranch
#endif  // HWY_ONCE
