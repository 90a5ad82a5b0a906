// One call of mhc_pre and of mhc_pre_sinkhorn on the same tensors, for tests by hand.
#ifndef ANABRANCH_TESTS_OPS_MHC_PRE_CALL_H_
#define ANABRANCH_TESTS_OPS_MHC_PRE_CALL_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "anabranch/mhc.h"

namespace anabranch {

// mhc_pre_sinkhorn and mhc_pre on FP32 tensors with n = 4; phi is zero, so that bias are the
// logits.
struct PreCall {
  explicit PreCall(std::int64_t t = 1, std::int64_t hidden = 8)
      : tokens(t),
        d(hidden),
        x(Size(t * 4 * d), 0.5f),
        phi(Size(24 * 4 * d)),
        alpha(3, 1.0f),
        bias(24),
        h_in(Size(t * d), -7.0f),
        h_post(Size(t * 4), -7.0f),
        h_res(Size(t * 16), -7.0f),
        inv_rms(Size(t), -7.0f),
        h_mix(Size(t * 24), -7.0f),
        h_pre(Size(t * 4), -7.0f) {
    pre.x = TensorView(x.data(), DType::kFloat32, {t, 4, d});
    pre.phi = TensorView(phi.data(), DType::kFloat32, {24, 4 * d});
    pre.alpha = TensorView(alpha.data(), DType::kFloat32, {3});
    pre.bias = TensorView(bias.data(), DType::kFloat32, {24});
    pre.h_in = TensorView(h_in.data(), DType::kFloat32, {t, d});
    pre.h_post = TensorView(h_post.data(), DType::kFloat32, {t, 4});
    pre.h_res = TensorView(h_res.data(), DType::kFloat32, {t, 4, 4});
    pre.inv_rms = TensorView(inv_rms.data(), DType::kFloat32, {t});
    pre.h_mix = TensorView(h_mix.data(), DType::kFloat32, {t, 24});
    pre.h_pre = TensorView(h_pre.data(), DType::kFloat32, {t, 4});
    fused.x = pre.x;
    fused.phi = pre.phi;
    fused.alpha = pre.alpha;
    fused.bias = pre.bias;
    fused.h_in = pre.h_in;
    fused.h_post = pre.h_post;
    fused.h_res = pre.h_res;
    fused.inv_rms = pre.inv_rms;
    fused.h_mix = pre.h_mix;
    fused.h_pre = pre.h_pre;
  }
  static std::size_t Size(std::int64_t value) { return static_cast<std::size_t>(value); }
  template <class Args>
  static Status Run(const Args& args) {
    Plan plan;
    Status status = Prepare(args, &plan);
    return status.ok() ? plan.Run() : status;
  }
  void SetLogits(const std::vector<float>& z) { std::copy(z.begin(), z.end(), bias.begin() + 8); }

  std::int64_t tokens, d;
  std::vector<float> x, phi, alpha, bias, h_in, h_post, h_res, inv_rms, h_mix, h_pre;
  MhcPreArgs pre;
  MhcPreSinkhornArgs fused;
};

}  // namespace anabranch

#endif  // ANABRANCH_TESTS_OPS_MHC_PRE_CALL_H_
