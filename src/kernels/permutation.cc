// See permutation.h. Compiled once per target.
#include "src/kernels/permutation.h"

#include <algorithm>
#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/permutation.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "src/simd/dispatch.h"
#include "src/simd/exp-inl.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE VecF LoadLogit(const float* base, int index, std::size_t part) {
  return hn::LoadU(TagF(), base + index * kPermutationLanes + part * kLanes);
}

HWY_INLINE void StoreLogit(VecF value, float* base, int index, std::size_t part) {
  hn::StoreU(value, TagF(), base + index * kPermutationLanes + part * kLanes);
}

HWY_INLINE void Softmax(const float* z, int count, std::size_t part, VecF* p) {
  VecF top = LoadLogit(z, 0, part);
  for (int r = 1; r < count; ++r) top = hn::Max(top, LoadLogit(z, r, part));
  VecF sum = ZeroF();
  for (int r = 0; r < count; ++r) {
    p[r] = ExpF(hn::Sub(LoadLogit(z, r, part), top));
    sum = hn::Add(sum, p[r]);
  }
  const VecF by = hn::Div(SetF(1.0f), sum);  // the largest term is 1
  for (int r = 0; r < count; ++r) p[r] = hn::Mul(p[r], by);
}

void Forward(const PermutationForward& a) {
  const int count = PermutationCount(a.n);
  const std::uint8_t* order = Permutations(a.n);
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF p[kPermutationLogits];
    VecF h[kPermutationStreams * kPermutationStreams];
    Softmax(a.z, count, part, p);
    for (int k = 0; k < a.n * a.n; ++k) h[k] = ZeroF();
    for (int r = 0; r < count; ++r) {
      for (int i = 0; i < a.n; ++i) {
        VecF& to = h[i * a.n + order[r * a.n + i]];
        to = hn::Add(to, p[r]);
      }
    }
    for (int k = 0; k < a.n * a.n; ++k) StoreLogit(h[k], a.h_res, k, part);
  }
}

// dz_r = p_r (d_r - sum_s p_s d_s) with d_r = sum_i grad[i, perm_r[i]].
void Backward(const PermutationBackward& a) {
  const int count = PermutationCount(a.n);
  const std::uint8_t* order = Permutations(a.n);
  for (std::size_t part = 0; part < kParts; ++part) {
    VecF p[kPermutationLogits];
    VecF d[kPermutationLogits];
    Softmax(a.z, count, part, p);
    VecF dot = ZeroF();
    for (int r = 0; r < count; ++r) {
      d[r] = LoadLogit(a.grad, order[r * a.n], part);
      for (int i = 1; i < a.n; ++i) {
        d[r] = hn::Add(d[r], LoadLogit(a.grad, i * a.n + order[r * a.n + i], part));
      }
      dot = hn::MulAdd(p[r], d[r], dot);
    }
    for (int r = 0; r < count; ++r) {
      StoreLogit(hn::Mul(p[r], hn::Sub(d[r], dot)), a.grad_z, r, part);
    }
  }
}

}  // namespace

PermutationKernels PermutationTable() { return {&Forward, &Backward, "generic", kThisTarget}; }

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {
namespace {

template <int N>
std::array<std::uint8_t, N * PermutationCount(N)> MakePermutations() {
  std::array<std::uint8_t, N * PermutationCount(N)> all{};
  std::array<std::uint8_t, N> one{};
  for (int i = 0; i < N; ++i) one[i] = static_cast<std::uint8_t>(i);
  auto to = all.begin();
  do {
    to = std::copy(one.begin(), one.end(), to);
  } while (std::next_permutation(one.begin(), one.end()));
  return all;
}

template <int N>
const std::uint8_t* PermutationsOf() {
  static const auto all = MakePermutations<N>();
  return all.data();
}

}  // namespace

const std::uint8_t* Permutations(int n) {
  switch (n) {
    case 1:
      return PermutationsOf<1>();
    case 2:
      return PermutationsOf<2>();
    case 3:
      return PermutationsOf<3>();
    case 4:
      return PermutationsOf<4>();
    default:
      return PermutationsOf<5>();
  }
}

HWY_EXPORT(PermutationTable);

PermutationKernels GetPermutationKernels(Target target) {
  return ANABRANCH_DISPATCH(PermutationTable, target)();
}

}  // namespace anabranch
#endif  // HWY_ONCE
