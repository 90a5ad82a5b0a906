// Scalars, arrays of numbers, lists of scalars, and how long lists are.
#include <cstring>
#include <type_traits>
#include <vector>

#include "aclnn/acl_meta.h"
#include "src/acl/message.h"
#include "src/acl/object.h"
#include "src/acl/tensor.h"

using anabranch::acl::Kind;

// These names are what the C headers declare.
struct aclScalar final : anabranch::acl::Object {
  static constexpr Kind kKind = Kind::kScalar;
  aclScalar() : Object(kKind) {}
  std::vector<unsigned char> bytes;
  aclDataType dtype = ACL_DT_UNDEFINED;
};

struct aclScalarList final : anabranch::acl::Object {
  static constexpr Kind kKind = Kind::kScalarList;
  aclScalarList() : Object(kKind) {}
  std::vector<const aclScalar*> values;  // handles; the list owns them
};

struct aclIntArray final : anabranch::acl::Object {
  static constexpr Kind kKind = Kind::kIntArray;
  aclIntArray() : Object(kKind) {}
  std::vector<std::int64_t> values;
};

struct aclFloatArray final : anabranch::acl::Object {
  static constexpr Kind kKind = Kind::kFloatArray;
  aclFloatArray() : Object(kKind) {}
  std::vector<float> values;
};

struct aclBoolArray final : anabranch::acl::Object {
  static constexpr Kind kKind = Kind::kBoolArray;
  aclBoolArray() : Object(kKind) {}
  std::vector<unsigned char> values;  // 0 or 1
};

namespace anabranch::acl {
namespace {

constexpr std::uint64_t kMostElements = 1 << 20;  // more is a mistaken argument, not an array

bool CheckArray(const std::string& call, const void* value, std::uint64_t size) {
  if (value == nullptr && size > 0) {
    Fail(ACLNN_ERR_PARAM_NULLPTR,
         call + ": value is null, expected " + std::to_string(size) + " elements");
    return false;
  }
  if (size > kMostElements) {
    Fail(ACLNN_ERR_PARAM_INVALID, call + ": size is " + std::to_string(size) +
                                      ", expected at most " + std::to_string(kMostElements));
    return false;
  }
  return true;
}

template <class Array, class T>
Array* CreateArray(const char* call, const T* value, std::uint64_t size) noexcept {
  Array* handle = nullptr;
  Guarded(call, [&] {
    if (!CheckArray(call, value, size)) return 0;
    auto array = std::make_shared<Array>();
    array->values.assign(value, value + size);
    handle = static_cast<Array*>(Handles().Add(std::move(array)));
    return 0;
  });
  return handle;
}

aclScalar* CreateScalar(const void* value, aclDataType dtype) {
  const std::size_t bytes = ElementBytes(dtype);
  if (value == nullptr || bytes == 0) {
    const std::string what = value == nullptr ? "value is null, expected the address of the value"
                                              : "dataType is " + AclDataTypeName(dtype) +
                                                    ", expected one of whole bytes";
    Fail(value == nullptr ? ACLNN_ERR_PARAM_NULLPTR : ACLNN_ERR_PARAM_INVALID,
         "aclCreateScalar: " + what);
    return nullptr;
  }
  auto scalar = std::make_shared<aclScalar>();
  scalar->bytes.resize(bytes);
  std::memcpy(scalar->bytes.data(), value, bytes);
  scalar->dtype = dtype;
  return static_cast<aclScalar*>(Handles().Add(std::move(scalar)));
}

aclScalarList* CreateScalarList(const aclScalar* const* value, std::uint64_t size) {
  if (!CheckArray("aclCreateScalarList", value, size)) return nullptr;
  auto list = std::make_shared<aclScalarList>();
  for (std::uint64_t k = 0; k < size; ++k) {
    if (!Find<aclScalar>(value[k])) {
      Fail(ACLNN_ERR_PARAM_NULLPTR, "aclCreateScalarList: value[" + std::to_string(k) +
                                        "] is null or no live scalar, expected a scalar");
      return nullptr;
    }
    list->values.push_back(value[k]);
  }
  return static_cast<aclScalarList*>(Handles().Add(std::move(list)));
}

int NotLive(const std::string& call, const char* what) {
  return Fail(ACLNN_ERR_PARAM_INVALID,
              call + ": the handle is no live " + what + ", expected one that was created");
}

// Null is harmless, as for every destroy call.
template <class T>
aclnnStatus Destroy(const char* call, const char* what, const T* handle) noexcept {
  return Guarded(call, [&]() -> int {
    if (handle == nullptr) return ACLNN_SUCCESS;
    const std::shared_ptr<T> object = Remove<T>(handle);
    if (!object) return NotLive(call, what);
    if constexpr (std::is_same_v<T, aclScalarList>) {
      for (const aclScalar* member : object->values) Remove<aclScalar>(member);
    }
    return ACLNN_SUCCESS;
  });
}

std::size_t SizeOf(const aclTensorList& list) { return list.tensors.size(); }
template <class T>
std::size_t SizeOf(const T& array) {
  return array.values.size();
}

template <class T>
aclnnStatus GetSize(const char* call, const char* what, const T* handle,
                    std::uint64_t* size) noexcept {
  return Guarded(call, [&]() -> int {
    if (handle == nullptr || size == nullptr) {
      return Fail(ACLNN_ERR_PARAM_NULLPTR, std::string(call) + ": " +
                                               (handle == nullptr ? what : "size") +
                                               " is null, expected an address");
    }
    const std::shared_ptr<T> object = Find<T>(handle);
    if (!object) return NotLive(call, what);
    *size = SizeOf(*object);
    return ACLNN_SUCCESS;
  });
}

}  // namespace
}  // namespace anabranch::acl

namespace acl = anabranch::acl;

extern "C" {

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
  aclScalar* scalar = nullptr;
  acl::Guarded("aclCreateScalar", [&] {
    scalar = acl::CreateScalar(value, dataType);
    return 0;
  });
  return scalar;
}

aclnnStatus aclDestroyScalar(const aclScalar* scalar) {
  return acl::Destroy("aclDestroyScalar", "scalar", scalar);
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  return acl::CreateArray<aclIntArray>("aclCreateIntArray", value, size);
}

aclnnStatus aclDestroyIntArray(const aclIntArray* array) {
  return acl::Destroy("aclDestroyIntArray", "array", array);
}

aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
  return acl::CreateArray<aclFloatArray>("aclCreateFloatArray", value, size);
}

aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) {
  return acl::Destroy("aclDestroyFloatArray", "array", array);
}

aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
  return acl::CreateArray<aclBoolArray>("aclCreateBoolArray", value, size);
}

aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) {
  return acl::Destroy("aclDestroyBoolArray", "array", array);
}

aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
  aclScalarList* list = nullptr;
  acl::Guarded("aclCreateScalarList", [&] {
    list = acl::CreateScalarList(value, size);
    return 0;
  });
  return list;
}

aclnnStatus aclDestroyScalarList(const aclScalarList* array) {
  return acl::Destroy("aclDestroyScalarList", "list", array);
}

aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size) {
  return acl::GetSize("aclGetIntArraySize", "array", array, size);
}

aclnnStatus aclGetFloatArraySize(const aclFloatArray* array, uint64_t* size) {
  return acl::GetSize("aclGetFloatArraySize", "array", array, size);
}

aclnnStatus aclGetBoolArraySize(const aclBoolArray* array, uint64_t* size) {
  return acl::GetSize("aclGetBoolArraySize", "array", array, size);
}

aclnnStatus aclGetTensorListSize(const aclTensorList* tensorList, uint64_t* size) {
  return acl::GetSize("aclGetTensorListSize", "tensorList", tensorList, size);
}

aclnnStatus aclGetScalarListSize(const aclScalarList* scalarList, uint64_t* size) {
  return acl::GetSize("aclGetScalarListSize", "scalarList", scalarList, size);
}

}  // extern "C"
