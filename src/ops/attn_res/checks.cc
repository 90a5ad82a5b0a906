#include "src/ops/attn_res/checks.h"

#include <cmath>
#include <cstdio>
#include <string>

#include "anabranch/block_attn_res.h"

namespace anabranch {
namespace {

std::vector<std::string> Indexed(const char* name) {
  std::vector<std::string> names;
  names.reserve(kMaxBlocks);
  for (int i = 0; i < kMaxBlocks; ++i) {
    names.push_back(std::string(name) + "[" + std::to_string(i) + "]");
  }
  return names;
}

// The first known shape of a source, or null.
const TensorView* First(const std::vector<TensorView>& blocks, const TensorView& partial) {
  if (!blocks.empty()) return &blocks[0];
  return partial.defined() ? &partial : nullptr;
}

}  // namespace

const char* BlockName(std::size_t index) {
  static const std::vector<std::string> names = Indexed("blocks");
  return names[index].c_str();
}

const char* GradBlockName(std::size_t index) {
  static const std::vector<std::string> names = Indexed("grad_blocks");
  return names[index].c_str();
}

void CheckBlockList(Checker& c, const std::vector<TensorView>& blocks, std::int64_t fewest) {
  const auto count = static_cast<std::int64_t>(blocks.size());
  if (count < fewest || count > kMaxBlocks) {
    c.Invalid("blocks has " + std::to_string(count) + " tensors, expected " +
              std::to_string(fewest) + ".." + std::to_string(kMaxBlocks));
  }
  for (std::size_t i = 0; c.ok() && i < blocks.size(); ++i) c.Required(BlockName(i), blocks[i]);
}

void CheckSourceTypes(Checker& c, const std::vector<TensorView>& blocks,
                      const TensorView& partial) {
  const TensorView* first = First(blocks, partial);
  if (!c.ok() || first == nullptr) return;
  const char* first_name = blocks.empty() ? "partial_block" : BlockName(0);
  c.Activation(first_name, *first);
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    c.HasDType(BlockName(i), blocks[i], first->dtype, "like blocks[0]");
  }
  c.HasDType("partial_block", partial, first->dtype, "like blocks[0]");
}

void CheckSourceShapes(Checker& c, const std::vector<TensorView>& blocks, const TensorView& partial,
                       Dims* shape) {
  if (!c.ok() || blocks.empty()) return;
  c.Sane(BlockName(0), blocks[0], 1, "[*, D]");
  if (!c.ok()) return;
  *shape = blocks[0].sizes;
  c.InRange("blocks[0]: D", (*shape)[shape->rank - 1], 1, INT64_MAX);
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    c.Matches(BlockName(i), blocks[i], shape, BlockName(0));
  }
  c.Matches("partial_block", partial, shape, BlockName(0));
}

void CheckGradList(Checker& c, const std::vector<TensorView>& blocks,
                   const std::vector<TensorView>& grads, bool may_be_empty) {
  if (may_be_empty && grads.empty()) return;
  if (grads.size() != blocks.size()) {
    c.Invalid("grad_blocks has " + std::to_string(grads.size()) + " tensors, expected " +
              std::to_string(blocks.size()) + ", one a block");
  }
  for (std::size_t i = 0; c.ok() && !may_be_empty && i < grads.size(); ++i) {
    c.Required(GradBlockName(i), grads[i]);
  }
}

void CheckGradTypes(Checker& c, const std::vector<TensorView>& grads, DType activation) {
  for (std::size_t i = 0; c.ok() && i < grads.size(); ++i) {
    c.HasDType(GradBlockName(i), grads[i], activation, "like blocks[0]");
  }
}

void CheckGradShapes(Checker& c, const std::vector<TensorView>& grads, Dims* shape) {
  for (std::size_t i = 0; c.ok() && i < grads.size(); ++i) {
    c.Matches(GradBlockName(i), grads[i], shape, BlockName(0));
  }
}

void SetGradBlocks(std::vector<TensorView>* grads, std::size_t blocks, DType dtype,
                   const Dims& shape) {
  grads->resize(blocks);
  for (TensorView& grad : *grads) SetOutput(&grad, dtype, shape);
}

void CheckParamType(Checker& c, const char* name, const TensorView& t, DType activation) {
  if (!c.ok() || !t.defined() || t.dtype == activation) return;
  const DType wide = Checker::CoefficientFor(activation);
  if (t.dtype == wide) return;
  std::string wanted = DTypeName(wide);
  if (wide != activation) wanted += std::string(" or ") + DTypeName(activation);
  c.Invalid(std::string(name) + " has dtype " + DTypeName(t.dtype) + ", expected " + wanted +
            " with " + DTypeName(activation) + " activations");
}

void CheckParamShape(Checker& c, const char* name, const TensorView& t, std::int64_t* d) {
  if (!c.ok() || !t.defined()) return;
  const bool row = t.rank() == 2 && (t.sizes[0] == 1 || t.sizes[0] == kUnknown);
  Dims pattern = row ? Dims{1, *d} : Dims{*d};
  c.Matches(name, t, &pattern, "D of the blocks");
  if (c.ok()) *d = pattern[pattern.rank - 1];
}

void CheckParamGrad(Checker& c, const char* name, const TensorView& t, const char* param_name,
                    const TensorView& param) {
  if (!c.ok() || !t.defined()) return;
  c.HasDType(name, t, param.dtype, (std::string("like ") + param_name).c_str());
  Dims pattern = param.sizes;
  c.Matches(name, t, &pattern, param_name);
}

void AppendBlocks(const std::vector<TensorView>& blocks, std::vector<NamedTensor>* to) {
  for (std::size_t i = 0; i < blocks.size(); ++i) to->push_back({BlockName(i), blocks[i]});
}

void AppendGradBlocks(const std::vector<TensorView>& grads, std::vector<NamedTensor>* to) {
  for (std::size_t i = 0; i < grads.size(); ++i) to->push_back({GradBlockName(i), grads[i]});
}

void CheckFinite(Checker& c, const char* name, double value) {
  if (!c.ok() || std::isfinite(value)) return;
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  c.Invalid(std::string(name) + " is " + text + ", expected a finite number");
}

}  // namespace anabranch
