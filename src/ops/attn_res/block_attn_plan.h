// What both directions of block_attn_res keep of their arguments.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_BLOCK_ATTN_PLAN_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_BLOCK_ATTN_PLAN_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "src/core/check.h"
#include "src/core/half.h"
#include "src/core/plan_impl.h"
#include "src/core/tokens.h"
#include "src/kernels/attn_pipe.h"
#include "src/kernels/attn_residual.h"
#include "src/ops/attn_res/attn_res.h"
#include "src/ops/attn_res/params.h"
#include "src/ops/attn_res/sources.h"

namespace anabranch {

// A cache [*, L] or [*, L, 1].
struct Cache {
  Cache() = default;
  Cache(const TensorView& view, int leading)
      : rows(view, view.defined() ? view.rank() - leading : 0),
        stride(view.defined() ? view.strides[leading] : 0) {}
  bool defined() const { return rows.defined(); }
  float& At(std::int64_t t, int l) const {
    return reinterpret_cast<float*>(rows.Token(t))[l * stride];
  }
  TokenRows rows;
  std::int64_t stride = 0;
};

class BlockAttnPlan : public PlanImpl {
 public:
  template <class Args>
  BlockAttnPlan(const Args& a, Target target)
      : dtype_(a.blocks[0].dtype),
        leading_(a.blocks[0].rank() - 1),
        tokens_(CountTokens(a.blocks[0].sizes, leading_)),
        d_(a.blocks[0].sizes[leading_]),
        kernels_(GetAttnResidualKernels(dtype_, target)),
        pipe_kernels_(GetAttnPipeKernels(dtype_, target)),
        sources_(a.blocks, a.partial_block),
        w_(a.proj_weight),
        gamma_(a.enable_rmsnorm ? a.rmsnorm_gamma : TensorView()),
        rms_cache_(a.rms_cache, leading_),
        alpha_cache_(a.alpha_cache, leading_),
        scale_(static_cast<float>(a.scale)),
        eps_(static_cast<float>(a.rmsnorm_eps)),
        norm_(a.enable_rmsnorm) {
    info.target = kernels_.target;
    query_bytes_ = AlignUp(static_cast<std::size_t>(PackedLength(d_)) * sizeof(float));
  }

 protected:
  double row_bytes() const {
    return static_cast<double>(d_) * static_cast<double>(DTypeSize(dtype_));
  }
  // Element k of a row of the activations' dtype.
  void* Element(void* row, std::int64_t k) const {
    return static_cast<std::byte*>(row) + k * static_cast<std::int64_t>(DTypeSize(dtype_));
  }
  const void* Element(const void* row, std::int64_t k) const {
    return static_cast<const std::byte*>(row) + k * static_cast<std::int64_t>(DTypeSize(dtype_));
  }
  double token_bytes(int reads, int writes) const { return row_bytes() * (reads + writes); }

  float Rms(float squares) const {
    return norm_ ? std::sqrt(squares / static_cast<float>(d_) + eps_) : 1.0f;
  }

  // Calls run(k, length, both) for the parts of a row: one token is passed a second time, or one is
  // scored, or both, and then both side by side but for the elements behind the last whole unit.
  template <class F>
  void ForEachPart(bool cached, bool read, const F& run) const {
    const std::int64_t whole = cached && read ? d_ / 32 * 32 : 0;
    if (whole > 0) run(std::int64_t{0}, whole, true);
    if (whole < d_) run(whole, d_ - whole, false);
  }

  DType dtype_;
  int leading_;
  std::int64_t tokens_;
  std::int64_t d_;
  AttnResidualKernels kernels_;
  AttnPipeKernels pipe_kernels_;
  Sources sources_;
  ParamRow w_, gamma_;
  Cache rms_cache_, alpha_cache_;
  float scale_, eps_;
  bool norm_;
  std::size_t query_bytes_ = 0;
};

// What a plan says of its arguments.
template <class Args>
auto Shapes(const Args& args) {
  const std::size_t count = args.blocks.size() + (args.partial_block.defined() ? 1 : 0);
  const TensorView first = args.blocks.empty() ? TensorView() : args.blocks[0];
  return [count, first, norm = args.enable_rmsnorm] {
    return "L=" + std::to_string(count) + " " + Describe("blocks[0]", first) +
           (norm ? "norm" : "no norm");
  };
}

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_BLOCK_ATTN_PLAN_H_
