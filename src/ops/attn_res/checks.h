// Checks that the attention residual operators share.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_CHECKS_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_CHECKS_H_

#include <cstdint>
#include <vector>

#include "anabranch/tensor.h"
#include "src/core/check.h"

namespace anabranch {

// "blocks[3]" and "grad_blocks[3]", 0 <= index < kMaxBlocks; they live as long as the program.
const char* BlockName(std::size_t index);
const char* GradBlockName(std::size_t index);

// Number of blocks, then that none is absent.
void CheckBlockList(Checker& c, const std::vector<TensorView>& blocks, std::int64_t fewest);

// That all blocks and the partial block (may be absent) have the dtype and the shape of the first
// one; refines *shape, [*, D], by what any of them knows.
void CheckSourceTypes(Checker& c, const std::vector<TensorView>& blocks, const TensorView& partial);
void CheckSourceShapes(Checker& c, const std::vector<TensorView>& blocks, const TensorView& partial,
                       Dims* shape);

// Gradients of the blocks: as many as blocks (none at all passes where `may_be_empty`), and alike.
void CheckGradList(Checker& c, const std::vector<TensorView>& blocks,
                   const std::vector<TensorView>& grads, bool may_be_empty);
void CheckGradTypes(Checker& c, const std::vector<TensorView>& grads, DType activation);
void CheckGradShapes(Checker& c, const std::vector<TensorView>& grads, Dims* shape);
// In shape inference: one entry a block, absent ones like their block.
void SetGradBlocks(std::vector<TensorView>* grads, std::size_t blocks, DType dtype,
                   const Dims& shape);

// A parameter: FP32 or the activations' dtype (float64 with float64).
void CheckParamType(Checker& c, const char* name, const TensorView& t, DType activation);
// [D] or [1, D]; refines *d.
void CheckParamShape(Checker& c, const char* name, const TensorView& t, std::int64_t* d);
// The gradient of a parameter: its dtype and shape.
void CheckParamGrad(Checker& c, const char* name, const TensorView& t, const char* param_name,
                    const TensorView& param);

void AppendBlocks(const std::vector<TensorView>& blocks, std::vector<NamedTensor>* to);
void AppendGradBlocks(const std::vector<TensorView>& grads, std::vector<NamedTensor>* to);

// Any finite number.
void CheckFinite(Checker& c, const char* name, double value);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_CHECKS_H_
