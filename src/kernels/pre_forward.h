// The forward that mhc_pre, mhc_pre_sinkhorn and mhc_head share: projection, gates, weighted sum of
// the streams, one pass over x, for all tokens on the context's threads.
#ifndef ANABRANCH_SRC_KERNELS_PRE_FORWARD_H_
#define ANABRANCH_SRC_KERNELS_PRE_FORWARD_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/context.h"
#include "anabranch/plan.h"
#include "anabranch/tensor.h"
#include "src/core/tokens.h"
#include "src/kernels/gates.h"
#include "src/kernels/projection.h"
#include "src/kernels/projection_few.h"

namespace anabranch {

// Rows of phi: n of pre, then `post` (n or 0), then `res` of the residual part (or 0).
struct PreShape {
  std::int64_t tokens = 0;
  int n = 0;
  std::int64_t d = 0;
  int post = 0;
  int res = 0;
  int rows() const { return n + post + res; }
  int segment(int row) const { return row < n ? 0 : row < n + post ? 1 : 2; }
};

// Of streams [*, n, D] whose only rows are those of h_pre.
PreShape StreamShape(const TensorView& x);

// What may become of the residual logits before they leave: Sinkhorn.
class ResidualStage {
 public:
  virtual ~ResidualStage() = default;
  // z: [count][res] dense, of tokens token .. token + count - 1. `scratch` belongs to the slot.
  virtual void Forward(std::int64_t token, int count, const float* z, std::byte* scratch) const = 0;
  // dz: [count][res], overwritten with the gradient of z.
  virtual void Backward(std::int64_t token, int count, const float* z, float* dz,
                        std::byte* scratch) const = 0;
  virtual std::size_t scratch_bytes() const = 0;
};

struct PreForwardTensors {
  TensorView x;      // [*, n, D]
  TensorView phi;    // [F, K]
  TensorView alpha;  // one entry a segment
  TensorView bias;   // [F]
  TensorView gamma;  // [n, D] or absent
  TensorView h_in;   // [*, D]
  TokenRows h_post;  // [*, n]; undefined without post rows
  TokenRows h_res;   // [*, res] elements: row-major (stride0, stride1) of `res_columns`
  std::int64_t res_columns = 1;
  TokenRows inv_rms, h_mix, h_pre;  // each undefined or written
  // Each already rounded to FP32.
  float norm_eps = 0;
  float hc_eps = 0;
  float post_multiplier = 2;
};

// Whether an output is better written past the caches: larger than they are (StreamingThreshold),
// its rows dense and each at a multiple of 64 bytes.
bool WritesPastCaches(const TensorView& output);

class PreForward {
 public:
  // `stage`, if not null, takes the residual logits instead of h_res. It must outlive this.
  PreForward(const PreShape& shape, const PreForwardTensors& tensors, const ResidualStage* stage,
             Target target, const Context& context, PlanInfo* info);
  void Run(std::byte* workspace, const Context& context) const;

 private:
  struct Slot;
  struct Parameters;
  void PackBlock(std::int64_t block, float* out) const;
  void ProjectGroup(std::int64_t token, int count, std::int64_t block, std::int64_t next_token,
                    std::int64_t next_block, const float* phi, float* sums) const;
  void ProjectTile(std::int64_t token, int count, const float* phi, float* sums) const;
  void FinishTile(std::int64_t token, int count, const float* sums, const Slot& slot,
                  const Parameters& parameters) const;
  void FinishToken(std::int64_t token, const float* sums, float* gates, float* z, float* mix,
                   const Parameters& parameters) const;
  void StoreHIn(std::int64_t token, const float* weights) const;
  // Few tokens: pre_forward_few.cc.
  std::int64_t CutFewTokens(int threads);
  void ProjectInPlace(int token, int count, std::int64_t block, int begin, int end,
                      float* sums) const;
  void ProjectByRows(int count, float* sums, const Context& context) const;
  void ProjectByBlocks(int count, std::byte* packed, float* sums, const Context& context) const;
  void RunFewTokens(std::byte* workspace, const Context& context) const;
  void RunTiles(std::byte* workspace, const Context& context) const;
  Slot SlotAt(std::byte* slots, int slot) const;
  Parameters LoadParameters(float* memory) const;
  std::int64_t BlockBegin(std::int64_t block) const { return block % blocks_ * kProjectionBlock; }
  int BlockCount(std::int64_t block) const;

  PreShape shape_;
  PreForwardTensors t_;
  const ResidualStage* stage_;
  ProjectionKernels kernels_;
  SigmoidFunction sigmoid_;
  TokenRows x_, h_in_;
  bool dense_;
  bool stream_;
  std::int64_t blocks_;        // of one stream
  std::size_t packed_floats_;  // of one block of phi
  std::size_t sums_floats_;    // of one token
  int tile_ = 1;
  int slot_tokens_ = 1;  // most that a slot finishes at once
  int threads_ = 1;
  bool few_tokens_;
  ProjectFewFunction project_few_ = nullptr;  // null: few tokens need phi packed, too
  // How few tokens are cut: the rows of phi into row_parts_, the tokens into token_parts_;
  // row_parts_ 0: along K, block by block.
  int row_parts_ = 0;
  int token_parts_ = 1;
  std::size_t parameters_bytes_, slot_bytes_, phi_bytes_;
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_PRE_FORWARD_H_
