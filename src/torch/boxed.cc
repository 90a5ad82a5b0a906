// Boxed calls and their schemas, from the descriptions.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "src/core/infer.h"
#include "src/torch/call.h"
#include "src/torch/check.h"

namespace anabranch::torch_face {
namespace {

constexpr Face kFace = Face::kPython;

bool IsRequired(const Argument& a) { return a.presence == Presence::kRequired; }

const char* TypeOf(const Attribute& a) {
  return a.real != nullptr ? "float" : a.flag != nullptr ? "bool" : "int";
}

void Set(const Attribute& a, void* args, double value) {
  if (a.real != nullptr) a.real(args) = value;
  if (a.also != nullptr) a.also(args) = value;
  if (a.integer != nullptr) a.integer(args) = static_cast<std::int64_t>(value);
  if (a.flag != nullptr) a.flag(args) = value != 0;
  if (a.form != nullptr) a.form(args) = static_cast<Residual>(value);
}

// What an attribute or flag is on the stack, as a number.
double Number(const char* type, StableIValue value) {
  using torch::stable::detail::to;
  if (*type == 'f') return to<double>(value);
  if (*type == 'b') return to<bool>(value) ? 1 : 0;
  return static_cast<double>(to<std::int64_t>(value));
}

// Takes the list's tensors and frees it.
std::vector<Handle> TakeList(StableListHandle list) {
  std::vector<Handle> tensors;
  std::size_t size = 0;
  ANABRANCH_TORCH_CHECK(torch_list_size(list, &size));
  tensors.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    StableIValue item = 0;
    ANABRANCH_TORCH_CHECK(torch_list_get_item(list, i, &item));
    tensors.emplace_back(torch::stable::detail::to<AtenTensorHandle>(item));
  }
  ANABRANCH_TORCH_CHECK(torch_delete_list(list));
  return tensors;
}

Status ForeignDType(const PassSpec& spec, const ArgName& name, const Operand& operand) {
  return Status(StatusCode::kInvalidArgument,
                std::string(spec.name) + ": " + name.str() + " has dtype " + operand.foreign_dtype +
                    ", expected float32, bfloat16, float16 or float64");
}

Status Put(const PassSpec& spec, const ArgName& name, const Operand& operand, TensorView* view) {
  if (operand.foreign_dtype != nullptr) return ForeignDType(spec, name, operand);
  *view = operand.view;
  return Status();
}

// A dense copy for an address that is no multiple of the element size, as memory-mapped files give
// them: torch computes with such tensors.
Handle AlignedCopy(TensorView* view) {
  Handle copy = Allocate(view->dtype, view->sizes);
  auto* to = static_cast<std::byte*>(MutableData(copy));
  const auto* from = static_cast<const std::byte*>(view->data);
  const std::size_t element = DTypeSize(view->dtype);
  Dims index;
  for (int i = 0; i < view->rank(); ++i) index.push_back(0);
  for (std::int64_t k = view->numel(); k > 0; --k, to += element) {
    std::int64_t offset = 0;
    for (int i = 0; i < view->rank(); ++i) offset += index[i] * view->strides[i];
    std::memcpy(to, from + offset * static_cast<std::int64_t>(element), element);
    for (int i = view->rank() - 1; i >= 0 && ++index[i] == view->sizes[i]; --i) index[i] = 0;
  }
  *view = TensorView(MutableData(copy), view->dtype, view->sizes);
  return copy;
}

// Keeps the copies that a call had to make.
void Align(TensorView* view, std::vector<Handle>* copies) {
  const std::size_t element = DTypeSize(view->dtype);
  if (element == 0 || reinterpret_cast<std::uintptr_t>(view->data) % element == 0) return;
  copies->push_back(AlignedCopy(view));
}

// The numbers of a call in the schema's order: attributes, then flags, of which the bits come back.
template <class Next>
unsigned TakeNumbers(const PassSpec& spec, void* args, const Next& next) {
  for (const Attribute& a : spec.attributes) {
    if (a.python != nullptr) Set(a, args, next(TypeOf(a)));
  }
  unsigned asked = 0;
  for (const Ask& ask : spec.asks) {
    if (next("bool") != 0) asked |= 1u << ask.group;
  }
  return asked;
}

constexpr std::size_t kMostTensors = 32;

// The tensors of one call.
struct Owned {
  std::array<Handle, kMostTensors> tensors;  // a place for every input; that of the list is empty
  std::vector<Handle> members;               // of the list
  std::vector<Handle> copies;
};

// Takes everything from the stack, which owns it, before anything may fail. The flags come back.
unsigned Take(const PassSpec& spec, void* args, const StableIValue* stack, Owned* owned) {
  using torch::stable::detail::to;
  std::size_t at = 0;
  for (const Argument& a : spec.arguments) {
    if (a.output) continue;
    if (a.list != nullptr) {
      owned->members = TakeList(to<StableListHandle>(stack[at]));
    } else if (IsRequired(a)) {
      owned->tensors[at] = Handle(to<AtenTensorHandle>(stack[at]));
    } else {
      owned->tensors[at] = Handle(to<std::optional<AtenTensorHandle>>(stack[at]).value_or(nullptr));
    }
    ++at;
  }
  return TakeNumbers(spec, args, [&](const char* type) { return Number(type, stack[at++]); });
}

// Points the argument struct's views to the tensors.
Status Fill(const PassSpec& spec, void* args, const Owned& owned) {
  std::size_t at = 0;
  Status status;
  for (const Argument& a : spec.arguments) {
    if (a.output || !status.ok()) continue;
    if (a.list != nullptr) {
      std::vector<TensorView>& list = a.list(args);
      list.resize(owned.members.size());
      for (std::size_t i = 0; status.ok() && i < list.size(); ++i) {
        const ArgName name(a.python, static_cast<std::int64_t>(i));
        status = Put(spec, name, ToOperand(owned.members[i]), &list[i]);
      }
    } else if (owned.tensors[at].get() != nullptr) {
      status = Put(spec, a.python, ToOperand(owned.tensors[at]), &a.tensor(args));
    }
    ++at;
  }
  return status;
}

// Allocates one tensor for all views of a list, [N, *sizes], and points the views into it.
Handle AllocateStacked(std::vector<TensorView>* views) {
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

Handle AllocateOutput(const Argument& a, void* args) {
  if (a.list != nullptr) return AllocateStacked(&a.list(args));
  TensorView& view = a.tensor(args);
  if (!view.defined()) return AllocateAbsent();
  Handle tensor = Allocate(view.dtype, view.sizes);
  view = TensorView(MutableData(tensor), view.dtype, view.sizes);
  return tensor;
}

}  // namespace

std::string SchemaOf(const PassSpec& spec) {
  std::string inputs;
  std::string outputs;
  int count = 0;
  const auto add = [](std::string* to, const std::string& type, const char* name) {
    *to += (to->empty() ? "" : ", ") + type + " " + name;
  };
  for (const Argument& a : spec.arguments) {
    if (a.output) {
      add(&outputs, "Tensor", a.python);
      ++count;
    } else {
      add(&inputs, a.list != nullptr ? "Tensor[]" : IsRequired(a) ? "Tensor" : "Tensor?", a.python);
    }
  }
  for (const Attribute& a : spec.attributes) {
    if (a.python != nullptr) add(&inputs, TypeOf(a), a.python);
  }
  for (const Ask& ask : spec.asks) add(&inputs, "bool", ask.python);
  return std::string(spec.name) + "(" + inputs + ") -> " +
         (count == 1 ? "Tensor" : "(" + outputs + ")");
}

void RunBoxed(const Pass& pass, void* args, StableIValue* stack) {
  const PassSpec& spec = *pass.spec;
  Owned owned;
  const unsigned asked = Take(spec, args, stack, &owned);
  ThrowUnlessOk(Fill(spec, args, owned));
  ThrowUnlessOk(Infer(spec, args, kFace, asked));
  for (const Argument& a : spec.arguments) {
    if (a.output) continue;
    if (a.tensor != nullptr) Align(&a.tensor(args), &owned.copies);
    if (a.list == nullptr) continue;
    for (TensorView& view : a.list(args)) Align(&view, &owned.copies);
  }
  std::array<Handle, kMostTensors> outputs;
  std::size_t count = 0;
  for (const Argument& a : spec.arguments) {
    if (a.output) outputs[count++] = AllocateOutput(a, args);
  }
  const Context context = TorchContext();
  Plan plan;
  ThrowUnlessOk(pass.prepare(args, &plan, context));
  RunPlan(plan, context);
  for (std::size_t i = 0; i < count; ++i) {
    stack[i] = torch::stable::detail::from(outputs[i].release());
  }
}

Status InferOutputs(const Pass& pass, std::span<const Operand> tensors,
                    std::span<const Operand> list, std::span<const double> numbers,
                    std::vector<TensorView>* outputs) {
  struct Call {
    const Pass& pass;
    std::span<const Operand> tensors;
    std::span<const Operand> list;
    std::span<const double> numbers;
    std::vector<TensorView>* outputs;
    Status status;

    void Run(void* args) {
      const PassSpec& spec = *pass.spec;
      std::size_t tensor = 0;
      std::size_t number = 0;
      for (const Argument& a : spec.arguments) {
        if (a.output || !status.ok()) continue;
        if (a.list == nullptr) {
          status = Put(spec, a.python, tensors[tensor++], &a.tensor(args));
          continue;
        }
        a.list(args).resize(list.size());
        for (std::size_t i = 0; status.ok() && i < list.size(); ++i) {
          status = Put(spec, {a.python, static_cast<std::int64_t>(i)}, list[i], &a.list(args)[i]);
        }
      }
      const unsigned asked =
          TakeNumbers(spec, args, [&](const char* /*type*/) { return numbers[number++]; });
      if (status.ok()) status = Infer(spec, args, kFace, asked);
      if (!status.ok()) return;
      for (const Argument& a : spec.arguments) {
        if (a.output)
          outputs->push_back(a.list == nullptr ? a.tensor(args) : Stacked(a.list(args)));
      }
    }

    static TensorView Stacked(const std::vector<TensorView>& views) {
      TensorView stacked;
      if (views.empty()) return stacked;
      stacked.dtype = views.front().dtype;
      stacked.sizes.push_back(static_cast<std::int64_t>(views.size()));
      for (std::int64_t size : views.front().sizes) stacked.sizes.push_back(size);
      return stacked;
    }
  };
  Call call{pass, tensors, list, numbers, outputs, Status()};
  pass.with_args([](void* context, void* args) { static_cast<Call*>(context)->Run(args); }, &call);
  return call.status;
}

}  // namespace anabranch::torch_face
