#include "src/torch/call.h"

#include <torch/csrc/stable/ops.h>

#include <array>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "src/core/context_face.h"
#include "src/core/plan_impl.h"
#include "src/torch/check.h"

namespace anabranch::torch_face {
namespace {

using torch::headeronly::ScalarType;

struct NamedScalarType {
  ScalarType type;
  const char* name;
  DType ours;  // kUndefined: no operator takes it
};

constexpr auto kUnsupported = DType::kUndefined;
constexpr std::array kScalarTypes = {
    NamedScalarType{ScalarType::Float, "float32", DType::kFloat32},
    NamedScalarType{ScalarType::BFloat16, "bfloat16", DType::kBFloat16},
    NamedScalarType{ScalarType::Half, "float16", DType::kFloat16},
    NamedScalarType{ScalarType::Double, "float64", DType::kFloat64},
    NamedScalarType{ScalarType::Byte, "uint8", kUnsupported},
    NamedScalarType{ScalarType::Char, "int8", kUnsupported},
    NamedScalarType{ScalarType::Short, "int16", kUnsupported},
    NamedScalarType{ScalarType::Int, "int32", kUnsupported},
    NamedScalarType{ScalarType::Long, "int64", kUnsupported},
    NamedScalarType{ScalarType::UInt16, "uint16", kUnsupported},
    NamedScalarType{ScalarType::UInt32, "uint32", kUnsupported},
    NamedScalarType{ScalarType::UInt64, "uint64", kUnsupported},
    NamedScalarType{ScalarType::Bool, "bool", kUnsupported},
    NamedScalarType{ScalarType::ComplexHalf, "complex32", kUnsupported},
    NamedScalarType{ScalarType::ComplexFloat, "complex64", kUnsupported},
    NamedScalarType{ScalarType::ComplexDouble, "complex128", kUnsupported},
    NamedScalarType{ScalarType::Float8_e5m2, "float8_e5m2", kUnsupported},
    NamedScalarType{ScalarType::Float8_e4m3fn, "float8_e4m3fn", kUnsupported},
    NamedScalarType{ScalarType::Float8_e5m2fnuz, "float8_e5m2fnuz", kUnsupported},
    NamedScalarType{ScalarType::Float8_e4m3fnuz, "float8_e4m3fnuz", kUnsupported},
};

// An absent tensor has kUndefined too; a present one of a foreign dtype is told apart by the name.
constexpr char kUnnamed[] = "of another kind";

std::int32_t ToTorch(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return aoti_torch_dtype_bfloat16();
    case DType::kFloat16:
      return aoti_torch_dtype_float16();
    case DType::kFloat64:
      return aoti_torch_dtype_float64();
    default:
      return aoti_torch_dtype_float32();
  }
}

void ParallelFor(void* /*pool*/, std::int64_t count, Context::Task task, void* state) {
  torch::stable::parallel_for(0, count, 1, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) task(state, i);
  });
}

}  // namespace

Operand ToOperand(const Handle& tensor) {
  Operand operand;
  bool defined = false;
  ANABRANCH_TORCH_CHECK(aoti_torch_is_defined(tensor.get(), &defined));
  if (!defined) return operand;  // None, passed for a required tensor
  operand.foreign_dtype = kUnnamed;
  std::int32_t type = 0;
  ANABRANCH_TORCH_CHECK(aoti_torch_get_dtype(tensor.get(), &type));
  for (const NamedScalarType& known : kScalarTypes) {
    if (static_cast<std::int32_t>(known.type) != type) continue;
    operand.view.dtype = known.ours;
    operand.foreign_dtype = known.ours == kUnsupported ? known.name : nullptr;
    break;
  }
  std::int64_t rank = 0;
  std::int64_t* sizes = nullptr;
  std::int64_t* strides = nullptr;
  const void* data = nullptr;
  ANABRANCH_TORCH_CHECK(aoti_torch_get_dim(tensor.get(), &rank));
  ANABRANCH_TORCH_CHECK(aoti_torch_get_sizes(tensor.get(), &sizes));
  ANABRANCH_TORCH_CHECK(aoti_torch_get_strides(tensor.get(), &strides));
  ANABRANCH_TORCH_CHECK(torch_get_const_data_ptr(tensor.get(), &data));
  for (std::int64_t i = 0; i < rank; ++i) {
    operand.view.sizes.push_back(sizes[i]);
    operand.view.strides.push_back(strides[i]);
  }
  operand.view.data = const_cast<void*>(data);  // inputs are only read; the view type has no const
  return operand;
}

Operand ToOperand(const char* dtype_name, const Dims& sizes) {
  Operand operand;
  operand.foreign_dtype = dtype_name;
  for (const NamedScalarType& known : kScalarTypes) {
    if (std::string_view(dtype_name) != known.name || known.ours == kUnsupported) continue;
    operand.foreign_dtype = nullptr;
    operand.view.dtype = known.ours;
  }
  operand.view.sizes = sizes;
  return operand;
}

void ThrowUnlessOk(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

Handle Allocate(DType dtype, const Dims& sizes) {
  const Dims strides = ContiguousStrides(sizes);
  AtenTensorHandle handle = nullptr;
  ANABRANCH_TORCH_CHECK(aoti_torch_empty_strided(sizes.rank, sizes.values, strides.values,
                                                 ToTorch(dtype), aoti_torch_device_type_cpu(), 0,
                                                 &handle));
  return Handle(handle);
}

Handle AllocateAbsent() { return Allocate(DType::kFloat32, {0}); }

void* MutableData(const Handle& tensor) {
  void* data = nullptr;
  ANABRANCH_TORCH_CHECK(torch_get_mutable_data_ptr(tensor.get(), &data));
  return data;
}

Context TorchContext() {
  Context context;
  context.set_parallel_for(&ParallelFor, nullptr,
                           static_cast<int>(torch::stable::get_num_threads()));
  return ContextFace::With(context, Face::kPython);
}

void RunPlan(const Plan& plan, const Context& context) {
  if (plan.workspace_bytes() == 0) {
    ThrowUnlessOk(plan.Run(nullptr, 0, context));
    return;
  }
  // A small one lies on the stack, which costs nothing.
  constexpr std::size_t kSmall = 16384;
  if (plan.workspace_bytes() <= kSmall) {
    alignas(kWorkspaceAlignment) std::byte workspace[kSmall];
    ThrowUnlessOk(plan.Run(workspace, kSmall, context));
    return;
  }
  // torch's allocator aligns to 64 bytes as plans want it, so that the profiler sees the workspace.
  const auto bytes = static_cast<std::int64_t>(AlignUp(plan.workspace_bytes()));
  const Handle workspace = Allocate(DType::kFloat32, {bytes / 4});
  ThrowUnlessOk(plan.Run(MutableData(workspace), static_cast<std::size_t>(bytes), context));
}

}  // namespace anabranch::torch_face
