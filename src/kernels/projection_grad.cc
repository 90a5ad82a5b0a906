// See projection_grad.h. Compiled once per target.
#include "src/kernels/projection_grad.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/projection_grad.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "src/simd/dispatch.h"
#include "src/simd/units-inl.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {
namespace {

// --- dots of grad_h_in with the streams

// A kilobyte ahead; past the end of a row that is the next one.
template <class T>
HWY_INLINE void PrefetchAhead(const T* at) {
  hwy::Prefetch(reinterpret_cast<const std::uint8_t*>(reinterpret_cast<std::uintptr_t>(at) + 1024));
}

template <int N, class T>
HWY_INLINE void DotUnits(const T* const* rows, const T* g, std::size_t units, float* sums) {
  const TagF df;
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF acc[N];
    for (int i = 0; i < N; ++i) acc[i] = hn::LoadU(df, sums + i * 16 + part * kLanes);
    for (std::size_t u = 0; u < units; ++u) {
      VecF ga, gb;
      LoadPart(g + u * kUnit, part, ga, gb);
      for (int i = 0; i < N; ++i) {
        VecF xa, xb;
        LoadPart(rows[i] + u * kUnit, part, xa, xb);
        acc[i] = hn::MulAdd(xb, gb, hn::MulAdd(xa, ga, acc[i]));
        if (part == 0) PrefetchAhead(rows[i] + u * kUnit);
      }
    }
    for (int i = 0; i < N; ++i) hn::StoreU(acc[i], df, sums + i * 16 + part * kLanes);
  }
}

template <int N, class T>
HWY_INLINE void DotRows(const StreamDots& a, int first) {
  constexpr std::size_t kRun = 1024;  // elements, so that all parts find the rows in L1
  const auto d = static_cast<std::size_t>(a.d);
  const T* rows[N];
  for (int i = 0; i < N; ++i) rows[i] = static_cast<const T*>(a.x) + (first + i) * a.x_lane;
  const T* g = static_cast<const T*>(a.g);
  float* sums = a.sums + first * 16;
  std::size_t k = 0;
  while (k + kUnit <= d) {
    const std::size_t units = std::min(kRun, d - k) / kUnit;
    const T* at[N];
    for (int i = 0; i < N; ++i) at[i] = rows[i] + k;
    DotUnits<N>(at, g + k, units, sums);
    k += units * kUnit;
  }
  if (k == d) return;
  T tails[N + 1][kUnit];
  const T* at[N];
  for (int i = 0; i < N; ++i) {
    GatherUnit(rows[i] + k, 1, d - k, tails[i]);
    at[i] = tails[i];
  }
  GatherUnit(g + k, 1, d - k, tails[N]);
  DotUnits<N>(at, tails[N], 1, sums);
}

template <class T>
void Dots(const StreamDots& a) {
  int i = 0;
  for (; i + 4 <= a.n; i += 4) DotRows<4, T>(a, i);
  for (; i < a.n; ++i) DotRows<1, T>(a, i);
}

void FinishSums(const float* sums, int count, float* out) { SumLanes16Each(sums, count, out); }

// --- phi and its gradient

HWY_INLINE VecF Clean(VecF v) { return hn::IfThenElse(hn::IsNaN(v), hn::NaN(TagF()), v); }

template <class T>
HWY_INLINE void LoadStrided(const float* from, std::ptrdiff_t stride, std::size_t count,
                            std::size_t part, VecF& a, VecF& b) {
  HWY_ALIGN float unit[kUnit];
  if (stride != 1 || count < kUnit) {
    GatherUnit(from, stride, count, unit);
    from = unit;
  }
  LoadUnitLanes<T>(from, part, a, b);
}

template <class T>
HWY_INLINE void StoreStrided(VecF a, VecF b, std::size_t part, float* unit, float* to,
                             std::ptrdiff_t stride, std::size_t count) {
  const bool direct = stride == 1 && count == kUnit;
  StoreUnitLanes<T>(a, b, part, direct ? to : unit);
  if (direct || part + 1 < kParts) return;
  for (std::size_t k = 0; k < count; ++k) to[static_cast<std::ptrdiff_t>(k) * stride] = unit[k];
}

template <class T>
void PackUnits(const GradParameters& a) {
  const auto count = static_cast<std::size_t>(a.count);
  float* out = a.phi_units;
  for (std::size_t k = 0; k < count; k += kUnit) {
    const std::size_t here = std::min(kUnit, count - k);
    const auto offset = static_cast<std::ptrdiff_t>(k);
    for (int i = 0; i < a.n; ++i) {
      for (std::size_t part = 0; part < kParts; ++part) {
        VecF ga, gb;
        if (a.gamma != nullptr) {
          LoadStrided<T>(a.gamma + i * a.gamma_stream + offset * a.gamma_stride, a.gamma_stride,
                         here, part, ga, gb);
        }
        const float* from = a.phi + i * a.stream_stride + offset * a.stride;
        for (int f = 0; f < a.rows; ++f) {
          VecF pa, pb;
          LoadStrided<T>(from + f * a.row_stride, a.stride, here, part, pa, pb);
          if (a.gamma != nullptr) {
            pa = hn::Mul(pa, ga);
            pb = hn::Mul(pb, gb);
          }
          StorePart(Clean(pa), Clean(pb), part, out + static_cast<std::size_t>(f) * kUnit);
        }
      }
      out += static_cast<std::size_t>(a.rows) * kUnit;
    }
  }
}

// grad_phi = sum * gamma; grad_gamma = sum over rows of phi * sum, rows ascending.
template <class T>
void FinishUnits(const GradParameters& a) {
  const auto count = static_cast<std::size_t>(a.count);
  const float* sums = a.grad_units;
  HWY_ALIGN float unit[kUnit];
  for (std::size_t k = 0; k < count; k += kUnit) {
    const std::size_t here = std::min(kUnit, count - k);
    const auto offset = static_cast<std::ptrdiff_t>(k);
    for (int i = 0; i < a.n; ++i, sums += static_cast<std::size_t>(a.rows) * kUnit) {
      float* to = a.grad_phi + i * a.grad_stream_stride + offset * a.grad_stride;
      for (int f = 0; f < a.rows; ++f) {
        for (std::size_t part = 0; part < kParts; ++part) {
          VecF sa, sb;
          LoadPart(sums + static_cast<std::size_t>(f) * kUnit, part, sa, sb);
          if (a.gamma != nullptr) {
            VecF ga, gb;
            LoadStrided<T>(a.gamma + i * a.gamma_stream + offset * a.gamma_stride, a.gamma_stride,
                           here, part, ga, gb);
            sa = hn::Mul(sa, ga);
            sb = hn::Mul(sb, gb);
          }
          StoreStrided<T>(sa, sb, part, unit, to + f * a.grad_row_stride, a.grad_stride, here);
        }
      }
      if (a.grad_gamma == nullptr) continue;
      const float* from = a.phi + i * a.stream_stride + offset * a.stride;
      for (std::size_t part = 0; part < kParts; ++part) {
        VecF ta = ZeroF();
        VecF tb = ZeroF();
        for (int f = 0; f < a.rows; ++f) {
          VecF pa, pb, sa, sb;
          LoadStrided<T>(from + f * a.row_stride, a.stride, here, part, pa, pb);
          LoadPart(sums + static_cast<std::size_t>(f) * kUnit, part, sa, sb);
          ta = hn::MulAdd(pa, sa, ta);
          tb = hn::MulAdd(pb, sb, tb);
        }
        StoreStrided<T>(ta, tb, part, unit,
                        a.grad_gamma + i * a.grad_gamma_stream + offset * a.grad_gamma_stride,
                        a.grad_gamma_stride, here);
      }
    }
  }
}

template <class T>
ProjectionGradKernels Make() {
  return {&Dots<T>, &FinishSums, &PackUnits<T>, &FinishUnits<T>, {}, kThisTarget};
}

}  // namespace

ProjectionGradKernels ProjectionGradTable(DType dtype) {
  return ForActivation(dtype, [](auto type) { return Make<decltype(type)>(); });
}

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {

HWY_EXPORT(ProjectionGradTable);

ProjectionGradKernels GetProjectionGradKernels(DType dtype, Target target) {
  ProjectionGradKernels kernels = ANABRANCH_DISPATCH(ProjectionGradTable, target)(dtype);
  kernels.units = GetGradUnitsKernels(dtype, target);
  return kernels;
}

}  // namespace anabranch
#endif  // HWY_ONCE
