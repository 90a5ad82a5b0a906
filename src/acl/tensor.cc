#include "src/acl/tensor.h"

#include "src/acl/message.h"

namespace anabranch::acl {

std::size_t ElementBytes(aclDataType dtype) {
  switch (dtype) {
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
    case ACL_HIFLOAT8:
    case ACL_FLOAT8_E5M2:
    case ACL_FLOAT8_E4M3FN:
    case ACL_FLOAT8_E8M0:
      return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16:
      return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32:
    case ACL_COMPLEX32:
      return 4;
    case ACL_DOUBLE:
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_COMPLEX64:
      return 8;
    case ACL_COMPLEX128:
      return 16;
    default:
      return 0;
  }
}

namespace {

// Product of sizes; false on a negative size or overflow.
bool Product(const std::vector<std::int64_t>& sizes, std::int64_t* product) {
  *product = 1;
  bool zero = false;
  for (std::int64_t size : sizes) {
    if (size < 0) return false;
    zero = zero || size == 0;
    if (size > 0 && __builtin_mul_overflow(*product, size, product)) return false;
  }
  if (zero) *product = 0;
  return true;
}

Dims ToDims(const std::vector<std::int64_t>& values) {
  Dims dims;
  for (std::int64_t value : values) dims.push_back(value);
  return dims;
}

// Empty if the view lies within its storage, else what is wrong.
std::string CheckView(const aclTensor& t) {
  std::int64_t elements = 0;
  std::int64_t storage = 0;
  if (!Product(t.sizes, &elements)) {
    return "viewDims are " + ToString(ToDims(t.sizes)) +
           ", expected sizes >= 0 with a product below 2^63";
  }
  if (!Product(t.storage, &storage)) {
    return "storageDims are " + ToString(ToDims(t.storage)) +
           ", expected sizes >= 0 with a product below 2^63";
  }
  if (t.offset < 0) return "offset is " + std::to_string(t.offset) + ", expected >= 0";
  const auto element = static_cast<std::int64_t>(ElementBytes(t.dtype));
  std::int64_t reach = 0;
  if (__builtin_mul_overflow(t.offset, element, &reach) ||
      __builtin_mul_overflow(storage, element, &reach)) {
    return "offset " + std::to_string(t.offset) + " or storageDims " + ToString(ToDims(t.storage)) +
           " reach beyond 2^63 bytes, expected a storage that fits memory";
  }
  if (elements == 0) return "";
  std::int64_t low = t.offset;
  std::int64_t high = t.offset;
  for (std::size_t i = 0; i < t.sizes.size(); ++i) {
    std::int64_t extent = 0;
    if (__builtin_mul_overflow(t.sizes[i] - 1, t.strides[i], &extent)) return "strides overflow";
    std::int64_t& side = extent < 0 ? low : high;
    if (__builtin_add_overflow(side, extent, &side)) return "strides overflow";
  }
  if (low < 0 || high >= storage) {
    return "the view reaches elements " + std::to_string(low) + ".." + std::to_string(high) +
           " of a storage of " + std::to_string(storage) + ", expected a view inside its storage";
  }
  return "";
}

std::vector<std::int64_t> DenseStrides(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::uint64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(sizes[i] > 0 ? sizes[i] : 1);
  }
  return strides;
}

}  // namespace

TensorView ToView(const aclTensor& t) {
  TensorView view;
  if (t.dtype == ACL_FLOAT) view.dtype = DType::kFloat32;
  if (t.dtype == ACL_FLOAT16) view.dtype = DType::kFloat16;
  if (t.dtype == ACL_BF16) view.dtype = DType::kBFloat16;
  view.sizes = ToDims(t.sizes);
  view.strides = ToDims(t.strides);
  view.data = AtOffset(t, t.data);
  return view;
}

void* AtOffset(const aclTensor& tensor, void* storage) {
  if (storage == nullptr) return nullptr;
  // Integers: the storage may be described larger than any memory.
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(storage) +
                                 static_cast<std::uintptr_t>(tensor.offset) *
                                     static_cast<std::uintptr_t>(ElementBytes(tensor.dtype)));
}

std::string AclDataTypeName(aclDataType dtype) {
  switch (dtype) {
    case ACL_FLOAT:
      return "FLOAT";
    case ACL_FLOAT16:
      return "FLOAT16";
    case ACL_BF16:
      return "BF16";
    case ACL_DOUBLE:
      return "DOUBLE";
    case ACL_INT32:
      return "INT32";
    case ACL_INT64:
      return "INT64";
    default:
      return "aclDataType " + std::to_string(static_cast<int>(dtype));
  }
}

bool IsPrivateFormat(aclFormat format) {
  return format == ACL_FORMAT_NC1HWC0 || format == ACL_FORMAT_FRACTAL_Z ||
         format == ACL_FORMAT_NC1HWC0_C04 || format == ACL_FORMAT_FRACTAL_NZ ||
         format == ACL_FORMAT_NDC1HWC0 || format == ACL_FRACTAL_Z_3D;
}

namespace {

constexpr std::uint64_t kMaxDims = 64;  // more is a mistaken argument, not a tensor

aclTensor* CreateTensor(const std::int64_t* sizes, std::uint64_t rank, aclDataType dtype,
                        const std::int64_t* strides, std::int64_t offset, aclFormat format,
                        const std::int64_t* storage, std::uint64_t storage_rank, void* data) {
  std::string problem;
  if (rank > kMaxDims || storage_rank > kMaxDims)
    problem = "more than 64 dimensions, expected fewer";
  if (sizes == nullptr && rank > 0) problem = "viewDims is null, expected the sizes";
  if (storage == nullptr && storage_rank > 0) problem = "storageDims is null, expected the sizes";
  auto tensor = std::make_shared<aclTensor>();
  if (problem.empty()) {
    tensor->sizes.assign(sizes, sizes + rank);
    tensor->strides = strides != nullptr ? std::vector<std::int64_t>(strides, strides + rank)
                                         : DenseStrides(tensor->sizes);
    tensor->storage.assign(storage, storage + storage_rank);
    tensor->dtype = dtype;
    tensor->offset = offset;
    tensor->format = format;
    tensor->data = data;
    problem = CheckView(*tensor);
  }
  if (!problem.empty()) {
    Fail(ACLNN_ERR_PARAM_INVALID, "aclCreateTensor: " + problem);
    return nullptr;
  }
  return static_cast<aclTensor*>(Handles().Add(std::move(tensor)));
}

aclTensorList* CreateList(const aclTensor* const* value, std::uint64_t size) {
  if (value == nullptr && size > 0) {
    Fail(ACLNN_ERR_PARAM_NULLPTR,
         "aclCreateTensorList: value is null, expected an array of tensors");
    return nullptr;
  }
  constexpr std::uint64_t kMost = 1 << 20;  // more is a mistaken argument, not a list
  if (size > kMost) {
    Fail(ACLNN_ERR_PARAM_INVALID, "aclCreateTensorList: size is " + std::to_string(size) +
                                      ", expected at most " + std::to_string(kMost));
    return nullptr;
  }
  auto list = std::make_shared<aclTensorList>();
  for (std::uint64_t k = 0; k < size; ++k) {
    std::shared_ptr<aclTensor> tensor = Find<aclTensor>(value[k]);
    if (!tensor) {
      Fail(ACLNN_ERR_PARAM_NULLPTR, "aclCreateTensorList: value[" + std::to_string(k) +
                                        "] is null or no live tensor, expected a tensor");
      return nullptr;
    }
    list->handles.push_back(value[k]);
    list->tensors.push_back(std::move(tensor));
  }
  return static_cast<aclTensorList*>(Handles().Add(std::move(list)));
}

}  // namespace

std::size_t ListSize(const aclTensorList* list) {
  const std::shared_ptr<aclTensorList> found = Find<aclTensorList>(list);
  return found ? found->tensors.size() : 0;
}

}  // namespace anabranch::acl

namespace acl = anabranch::acl;

extern "C" {

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                           const int64_t* stride, int64_t offset, aclFormat format,
                           const int64_t* storageDims, uint64_t storageDimsNum, void* tensorData) {
  aclTensor* tensor = nullptr;
  acl::Guarded("aclCreateTensor", [&] {
    tensor = acl::CreateTensor(viewDims, viewDimsNum, dataType, stride, offset, format, storageDims,
                               storageDimsNum, tensorData);
    return 0;
  });
  return tensor;
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
  return acl::Guarded("aclDestroyTensor", [&]() -> int {
    if (tensor == nullptr || acl::Remove<aclTensor>(tensor)) return ACLNN_SUCCESS;
    return acl::Fail(ACLNN_ERR_PARAM_INVALID,
                     "aclDestroyTensor: tensor is no live tensor, expected one of aclCreateTensor");
  });
}

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  aclTensorList* list = nullptr;
  acl::Guarded("aclCreateTensorList", [&] {
    list = acl::CreateList(value, size);
    return 0;
  });
  return list;
}

aclnnStatus aclDestroyTensorList(const aclTensorList* array) {
  return acl::Guarded("aclDestroyTensorList", [&]() -> int {
    if (array == nullptr) return ACLNN_SUCCESS;
    const std::shared_ptr<aclTensorList> list = acl::Remove<aclTensorList>(array);
    if (!list) {
      return acl::Fail(ACLNN_ERR_PARAM_INVALID,
                       "aclDestroyTensorList: array is no live list, expected one of "
                       "aclCreateTensorList");
    }
    for (const aclTensor* member : list->handles) acl::Remove<aclTensor>(member);
    return ACLNN_SUCCESS;
  });
}

}  // extern "C"
