// The calls that read a tensor's description.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "aclnn/acl_meta.h"
#include "src/acl/message.h"
#include "src/acl/tensor.h"

namespace anabranch::acl {
namespace {

// Calls read(tensor) once the tensor and where its answer goes are known to be there.
template <class Read>
aclnnStatus Get(const char* call, const aclTensor* handle, bool has_place,
                const Read& read) noexcept {
  return Guarded(call, [&]() -> int {
    if (handle == nullptr || !has_place) {
      return Fail(ACLNN_ERR_PARAM_NULLPTR, std::string(call) + ": " +
                                               (handle == nullptr ? "tensor" : "an output") +
                                               " is null, expected an address");
    }
    const std::shared_ptr<aclTensor> tensor = Find<aclTensor>(handle);
    if (!tensor) {
      return Fail(
          ACLNN_ERR_PARAM_INVALID,
          std::string(call) + ": tensor is no live tensor, expected one of aclCreateTensor");
    }
    read(*tensor);
    return ACLNN_SUCCESS;
  });
}

// The array is the caller's, to delete[].
void Copy(const std::vector<std::int64_t>& values, std::int64_t** array, std::uint64_t* size) {
  auto* copy = new std::int64_t[values.size()];
  std::copy(values.begin(), values.end(), copy);
  *array = copy;
  *size = values.size();
}

}  // namespace
}  // namespace anabranch::acl

namespace acl = anabranch::acl;

extern "C" {

aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum) {
  return acl::Get("aclGetViewShape", tensor, viewDims != nullptr && viewDimsNum != nullptr,
                  [&](const aclTensor& t) { acl::Copy(t.sizes, viewDims, viewDimsNum); });
}

aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue,
                              uint64_t* stridesNum) {
  return acl::Get("aclGetViewStrides", tensor, stridesValue != nullptr && stridesNum != nullptr,
                  [&](const aclTensor& t) { acl::Copy(t.strides, stridesValue, stridesNum); });
}

aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims,
                               uint64_t* storageDimsNum) {
  return acl::Get("aclGetStorageShape", tensor, storageDims != nullptr && storageDimsNum != nullptr,
                  [&](const aclTensor& t) { acl::Copy(t.storage, storageDims, storageDimsNum); });
}

aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
  return acl::Get("aclGetViewOffset", tensor, offset != nullptr,
                  [&](const aclTensor& t) { *offset = t.offset; });
}

aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format) {
  return acl::Get("aclGetFormat", tensor, format != nullptr,
                  [&](const aclTensor& t) { *format = t.format; });
}

aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType) {
  return acl::Get("aclGetDataType", tensor, dataType != nullptr,
                  [&](const aclTensor& t) { *dataType = t.dtype; });
}

}  // extern "C"
