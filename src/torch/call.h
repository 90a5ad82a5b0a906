// One call of an operator, seen from PyTorch: tensors become views, the description checks them and
// sizes the outputs, torch allocates, the plan runs on torch's threads. Only the stable LibTorch
// ABI is used, so one binary serves every PyTorch from 2.10 on. Its boxed calling convention is
// spoken here directly: TORCH_BOX wraps every tensor twice more, which takes as long as an operator
// on one token.
//
// An operator's arguments in PyTorch are, in this order: the inputs of its description, the
// attributes that have a Python name, the flags that ask for optional outputs. It gives back every
// output, an absent one as a tensor of no elements; a list of outputs comes back as one stacked
// tensor.
#ifndef ANABRANCH_SRC_TORCH_CALL_H_
#define ANABRANCH_SRC_TORCH_CALL_H_

#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "anabranch/plan.h"
#include "anabranch/status.h"
#include "anabranch/tensor.h"
#include "src/core/spec.h"

namespace anabranch::torch_face {

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

// Throws what torch shows as RuntimeError with the text of the status, unless it is ok.
void ThrowUnlessOk(const Status& status);

// Dense, uninitialised, on the CPU.
Handle Allocate(DType dtype, const Dims& sizes);
Handle AllocateAbsent();
void* MutableData(const Handle& tensor);

// Threads are torch's: torch.set_num_threads rules. Messages name arguments as Python does.
Context TorchContext();
void RunPlan(const Plan& plan, const Context& context);

// A pass and its argument struct.
struct Pass {
  const PassSpec* spec;
  Status (*prepare)(const void* args, Plan* plan, const Context& context);
  // Calls body(context, args) with an argument struct of default values.
  void (*with_args)(void (*body)(void* context, void* args), void* context);
  void (*boxed)(StableIValue* stack, std::uint64_t inputs, std::uint64_t outputs);
};

// All passes that PyTorch has, forwards before their backwards.
std::span<const Pass> Passes();
const Pass* FindPass(const std::string& name);

// "mhc_post(Tensor x, Tensor? h_res, ...) -> Tensor".
std::string SchemaOf(const PassSpec& spec);

// What torch calls; `args` is the pass's argument struct with its default values.
void RunBoxed(const Pass& pass, void* args, StableIValue* stack);

// Shape inference for the fake kernels of python/anabranch. Outputs in the order of the schema; an
// absent one is undefined.
Status InferOutputs(const Pass& pass, std::span<const Operand> tensors,
                    std::span<const Operand> list, std::span<const double> numbers,
                    std::vector<TensorView>* outputs);

}  // namespace anabranch::torch_face

#endif  // ANABRANCH_SRC_TORCH_CALL_H_
