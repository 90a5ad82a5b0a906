// One call of an operator, seen from PyTorch: tensors become views, the operator's own Infer checks
// them and sizes the outputs, torch allocates, the plan runs on torch's threads. Only the stable
// LibTorch ABI is used, so one binary serves every PyTorch from 2.10 on.
//
// An operator is described by a struct B ("binding"):
//   using Args = MhcPostArgs;
//   static constexpr char kName[] = "mhc_post";
//   static constexpr Input<Args> kInputs[] = {{"x", &Args::x}, ...};
//   static constexpr Output<Args> kOutputs[] = {&Args::y, ...};
//   static Status Infer(Args* args);
// and, where it has them:
//   static constexpr std::size_t kAttributes = 2;
//   static void SetAttributes(Args* args, Attributes values);
//   static void SetOptionalOutputs(Args* args, Attributes values);  // after Infer: what is wanted
//   static constexpr std::vector<TensorView> Args::*kList = &Args::blocks;            ("blocks")
//   static constexpr std::vector<TensorView> Args::*kListOutput = &Args::grad_blocks; (one stacked
//       tensor, last of the outputs)
#ifndef ANABRANCH_SRC_TORCH_CALL_H_
#define ANABRANCH_SRC_TORCH_CALL_H_

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "anabranch/plan.h"
#include "anabranch/status.h"
#include "anabranch/tensor.h"

namespace anabranch::torch_face {

using torch::stable::Tensor;
using Attributes = std::span<const double>;

template <class Args>
struct Input {
  const char* name;
  TensorView Args::*field;
};

template <class Args>
using Output = TensorView Args::*;

// A tensor argument before its dtype is known to be one of ours.
struct Operand {
  TensorView view;         // undefined: absent
  std::string dtype_name;  // set where view.dtype cannot say it
};

Operand ToOperand(const Tensor& tensor);
// `dtype_name` as torch prints it, without the module: "float32", "int64".
Operand ToOperand(const std::string& dtype_name, const Dims& sizes);

// "op: name has dtype int64, expected float32, ..." for a dtype that no operator takes.
Status CheckDType(const char* op, const std::string& name, const Operand& operand);

// Throws what torch shows as RuntimeError with the text of the status, unless it is ok.
void ThrowUnlessOk(const Status& status);

// Dense, uninitialised, on the CPU.
Tensor Allocate(DType dtype, const Dims& sizes);
Tensor AllocateAbsent();
void* MutableData(const Tensor& tensor);

// Threads are torch's: torch.set_num_threads rules.
Context TorchContext();
void RunPlan(const Plan& plan, const Context& context);

// Fills the inputs and attributes of B::Args and infers the outputs.
template <class B>
Status InferCall(std::span<const Operand> inputs, std::span<const Operand> list,
                 Attributes attributes, typename B::Args* args) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Status status = CheckDType(B::kName, B::kInputs[i].name, inputs[i]);
    if (!status.ok()) return status;
    args->*(B::kInputs[i].field) = inputs[i].view;
  }
  if constexpr (requires { B::kList; }) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      Status status = CheckDType(B::kName, "blocks[" + std::to_string(i) + "]", list[i]);
      if (!status.ok()) return status;
      (args->*(B::kList)).push_back(list[i].view);
    }
  }
  if constexpr (requires { B::SetAttributes(args, attributes); }) {
    B::SetAttributes(args, attributes);
  }
  Status status = B::Infer(args);
  if constexpr (requires { B::SetOptionalOutputs(args, attributes); }) {
    if (status.ok()) {
      B::SetOptionalOutputs(args, attributes);
      status = B::Infer(args);
    }
  }
  return status;
}

// Allocates one tensor for all views of a list, [N, *sizes], and points the views into it.
template <class Views>
Tensor AllocateStacked(Views* views) {
  if (views->empty()) return AllocateAbsent();
  Dims sizes{static_cast<std::int64_t>(views->size())};
  for (std::int64_t size : views->front().sizes) sizes.push_back(size);
  const DType dtype = views->front().dtype;
  Tensor stacked = Allocate(dtype, sizes);
  auto* address = static_cast<std::byte*>(MutableData(stacked));
  for (TensorView& view : *views) {
    view = TensorView(address, dtype, view.sizes);
    address += view.numel() * static_cast<std::int64_t>(DTypeSize(dtype));
  }
  return stacked;
}

// The whole call. Outputs in the order of B::kOutputs, then the stacked list output; an absent one
// is a tensor of no elements.
template <class B>
std::vector<Tensor> RunCall(std::initializer_list<const Tensor*> tensors, Attributes attributes,
                            std::span<const Tensor> list = {}) {
  Operand inputs[std::size(B::kInputs)];
  std::size_t count = 0;
  for (const Tensor* tensor : tensors) {
    if (tensor != nullptr) inputs[count] = ToOperand(*tensor);
    ++count;
  }
  std::vector<Operand> list_inputs;
  for (const Tensor& tensor : list) list_inputs.push_back(ToOperand(tensor));
  typename B::Args args;
  ThrowUnlessOk(InferCall<B>({inputs, count}, list_inputs, attributes, &args));
  std::vector<Tensor> outputs;
  for (Output<typename B::Args> output : B::kOutputs) {
    TensorView& view = args.*output;
    outputs.push_back(view.defined() ? Allocate(view.dtype, view.sizes) : AllocateAbsent());
    if (view.defined()) {
      view = TensorView(MutableData(outputs.back()), view.dtype, view.sizes);
    }
  }
  if constexpr (requires { B::kListOutput; }) {
    outputs.push_back(AllocateStacked(&(args.*(B::kListOutput))));
  }
  const Context context = TorchContext();
  Plan plan;
  ThrowUnlessOk(Prepare(args, &plan, context));
  RunPlan(plan, context);
  return outputs;
}

// What TORCH_BOX wants of an operator with several outputs: std::tuple<Tensor, ...>.
template <std::size_t>
using TensorAt = Tensor;
template <std::size_t... I>
std::tuple<TensorAt<I>...> AsTupleOf(const std::vector<Tensor>& r, std::index_sequence<I...>) {
  return {r[I]...};
}
template <std::size_t N>
auto AsTuple(const std::vector<Tensor>& results) {
  return AsTupleOf(results, std::make_index_sequence<N>());
}
template <std::size_t N>
using Tensors = decltype(AsTuple<N>({}));

inline const Tensor* Optional(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? &*tensor : nullptr;
}

// --- Shape inference by name, for the fake kernels of python/anabranch.
struct InferResult {
  Status status;
  std::vector<TensorView> outputs;  // in the order of RunCall; undefined: absent
};
using InferFunction = InferResult (*)(std::span<const Operand> inputs,
                                      std::span<const Operand> list, Attributes attributes);
struct InferEntry {
  const char* name;
  std::size_t inputs;
  std::size_t attributes;
  InferFunction infer;
};
const InferEntry* FindInfer(const std::string& name);
bool AddInfer(const InferEntry& entry);

template <class B>
InferResult InferByName(std::span<const Operand> inputs, std::span<const Operand> list,
                        Attributes attributes) {
  typename B::Args args;
  InferResult result;
  result.status = InferCall<B>(inputs, list, attributes, &args);
  if (!result.status.ok()) return result;
  for (Output<typename B::Args> output : B::kOutputs) result.outputs.push_back(args.*output);
  if constexpr (requires { B::kListOutput; }) {
    const auto& views = args.*(B::kListOutput);
    TensorView stacked;
    if (!views.empty()) {
      stacked.dtype = views.front().dtype;
      stacked.sizes.push_back(static_cast<std::int64_t>(views.size()));
      for (std::int64_t size : views.front().sizes) stacked.sizes.push_back(size);
    }
    result.outputs.push_back(stacked);
  }
  return result;
}

// At namespace scope of an operator's file: const bool registered = RegisterInfer<B>();
template <class B>
bool RegisterInfer() {
  std::size_t attributes = 0;
  if constexpr (requires { B::kAttributes; }) attributes = B::kAttributes;
  return AddInfer({B::kName, std::size(B::kInputs), attributes, &InferByName<B>});
}

}  // namespace anabranch::torch_face

#endif  // ANABRANCH_SRC_TORCH_CALL_H_
