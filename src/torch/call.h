// One call of an operator, seen from PyTorch: tensors become views, the operator's own Infer checks
// them and sizes the outputs, torch allocates, the plan runs on torch's threads. Only the stable
// LibTorch ABI is used, so one binary serves every PyTorch from 2.10 on. Its boxed calling
// convention is spoken here directly: TORCH_BOX wraps every tensor twice more, which takes as long
// as an operator on one token.
//
// An operator is described by a struct B ("binding"):
//   using Args = MhcPostArgs;
//   static constexpr char kName[] = "mhc_post";
//   static constexpr char kSchema[] = "mhc_post(Tensor x, ...) -> Tensor";
//   static constexpr Input<Args> kInputs[] = {{"x", &Args::x}, ...};  (in the schema's order)
//   static constexpr Output<Args> kOutputs[] = {&Args::y, ...};
//   static Status Infer(Args* args);
// and, where it has them:
//   static void SetAttributes(Args* args, Attributes values);  (numbers in the schema's order)
//   static bool SetOptionalOutputs(Args* args, Attributes values);  // after Infer: what is wanted;
//       false: nothing
//   static constexpr std::vector<TensorView> Args::*kList = &Args::blocks;            ("blocks")
//   static constexpr std::vector<TensorView> Args::*kListOutput = &Args::grad_blocks; (one stacked
//       tensor, last of the outputs)
#ifndef ANABRANCH_SRC_TORCH_CALL_H_
#define ANABRANCH_SRC_TORCH_CALL_H_

#include <torch/csrc/stable/library.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "anabranch/plan.h"
#include "anabranch/status.h"
#include "anabranch/tensor.h"
#include "src/torch/schema.h"

namespace anabranch::torch_face {

using Attributes = std::span<const double>;

template <class Args>
struct Input {
  const char* name;
  TensorView Args::*field;
};

template <class Args>
using Output = TensorView Args::*;

// Owns a tensor of torch's.
class Handle {
 public:
  Handle() = default;
  explicit Handle(AtenTensorHandle tensor) : tensor_(tensor) {}
  Handle(Handle&& other) noexcept : tensor_(std::exchange(other.tensor_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(tensor_, other.tensor_);
    return *this;
  }
  ~Handle() {
    if (tensor_ != nullptr) aoti_torch_delete_tensor_object(tensor_);
  }
  AtenTensorHandle get() const { return tensor_; }
  AtenTensorHandle release() { return std::exchange(tensor_, nullptr); }

 private:
  AtenTensorHandle tensor_ = nullptr;
};

// A tensor argument before its dtype is known to be one of ours.
struct Operand {
  TensorView view;                      // undefined: absent
  const char* foreign_dtype = nullptr;  // its name where view.dtype cannot say it
};

Operand ToOperand(const Handle& tensor);
// `dtype_name` as torch prints it, without the module: "float32", "int64". It must outlive the
// operand.
Operand ToOperand(const char* dtype_name, const Dims& sizes);

// "op: name has dtype int64, expected float32, ..." for a dtype that no operator takes.
Status ForeignDType(const char* op, const std::string& name, const Operand& operand);

// Throws what torch shows as RuntimeError with the text of the status, unless it is ok.
void ThrowUnlessOk(const Status& status);

// Dense, uninitialised, on the CPU.
Handle Allocate(DType dtype, const Dims& sizes);
Handle AllocateAbsent();
void* MutableData(const Handle& tensor);

// Threads are torch's: torch.set_num_threads rules.
Context TorchContext();
void RunPlan(const Plan& plan, const Context& context);

// What a boxed call brings, in the schema's order.
struct Arguments {
  std::span<Handle> tensors;
  std::vector<Handle> list;
  std::span<double> attributes;
};
void TakeArguments(const Schema& schema, StableIValue* stack, Arguments* arguments);

// Fills the inputs and attributes of B::Args and infers the outputs.
template <class B>
Status InferCall(std::span<const Operand> inputs, std::span<const Operand> list,
                 Attributes attributes, typename B::Args* args) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].foreign_dtype != nullptr) {
      return ForeignDType(B::kName, B::kInputs[i].name, inputs[i]);
    }
    args->*(B::kInputs[i].field) = inputs[i].view;
  }
  if constexpr (requires { B::kList; }) {
    (args->*(B::kList)).reserve(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].foreign_dtype != nullptr) {
        return ForeignDType(B::kName, "blocks[" + std::to_string(i) + "]", list[i]);
      }
      (args->*(B::kList)).push_back(list[i].view);
    }
  }
  if constexpr (requires { B::SetAttributes(args, attributes); }) {
    B::SetAttributes(args, attributes);
  }
  Status status = B::Infer(args);
  if constexpr (requires { B::SetOptionalOutputs(args, attributes); }) {
    if (status.ok() && B::SetOptionalOutputs(args, attributes)) status = B::Infer(args);
  }
  return status;
}

// Allocates one tensor for all views of a list, [N, *sizes], and points the views into it.
template <class Views>
Handle AllocateStacked(Views* views) {
  if (views->empty()) return AllocateAbsent();
  Dims sizes{static_cast<std::int64_t>(views->size())};
  for (std::int64_t size : views->front().sizes) sizes.push_back(size);
  const DType dtype = views->front().dtype;
  Handle stacked = Allocate(dtype, sizes);
  auto* address = static_cast<std::byte*>(MutableData(stacked));
  for (TensorView& view : *views) {
    view = TensorView(address, dtype, view.sizes);
    address += view.numel() * static_cast<std::int64_t>(DTypeSize(dtype));
  }
  return stacked;
}

// What torch calls. Outputs in the order of B::kOutputs, then the stacked list output; an absent
// one is a tensor of no elements.
template <class B>
void Boxed(StableIValue* stack, std::uint64_t /*inputs*/, std::uint64_t /*outputs*/) {
  static constexpr Schema kArguments(B::kSchema);
  constexpr std::size_t kTensors = kArguments.tensors();
  static_assert(kTensors == std::size(B::kInputs));
  std::array<Handle, kTensors> tensors;
  std::array<double, kArguments.attributes()> attributes{};
  Arguments arguments{tensors, {}, attributes};
  TakeArguments(kArguments, stack, &arguments);
  std::array<Operand, kTensors> inputs;
  for (std::size_t i = 0; i < kTensors; ++i) {
    if (tensors[i].get() != nullptr) inputs[i] = ToOperand(tensors[i]);
  }
  std::vector<Operand> list;
  list.reserve(arguments.list.size());
  for (const Handle& tensor : arguments.list) list.push_back(ToOperand(tensor));
  typename B::Args args;
  ThrowUnlessOk(InferCall<B>(inputs, list, attributes, &args));

  constexpr std::size_t kOutputs = std::size(B::kOutputs);
  std::array<Handle, kOutputs + 1> outputs;
  std::size_t count = kOutputs;
  for (std::size_t i = 0; i < kOutputs; ++i) {
    TensorView& view = args.*(B::kOutputs[i]);
    outputs[i] = view.defined() ? Allocate(view.dtype, view.sizes) : AllocateAbsent();
    if (view.defined()) view = TensorView(MutableData(outputs[i]), view.dtype, view.sizes);
  }
  if constexpr (requires { B::kListOutput; }) {
    outputs[count++] = AllocateStacked(&(args.*(B::kListOutput)));
  }
  const Context context = TorchContext();
  Plan plan;
  ThrowUnlessOk(Prepare(args, &plan, context));
  RunPlan(plan, context);
  for (std::size_t i = 0; i < count; ++i) {
    stack[i] = torch::stable::detail::from(outputs[i].release());
  }
}

template <class B>
void Define(torch::stable::detail::StableLibrary& library) {
  library.def(B::kSchema);
}
template <class B>
void Implement(torch::stable::detail::StableLibrary& library) {
  library.impl(B::kName, &Boxed<B>);
}

// --- Shape inference by name, for the fake kernels of python/anabranch.
struct InferResult {
  Status status;
  std::vector<TensorView> outputs;  // in the order of Boxed; undefined: absent
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
  constexpr std::size_t kAttributes = Schema(B::kSchema).attributes();
  return AddInfer({B::kName, std::size(B::kInputs), kAttributes, &InferByName<B>});
}

}  // namespace anabranch::torch_face

#endif  // ANABRANCH_SRC_TORCH_CALL_H_
