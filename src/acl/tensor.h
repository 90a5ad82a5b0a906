// Tensor descriptions behind aclTensor and aclTensorList.
#ifndef ANABRANCH_SRC_ACL_TENSOR_H_
#define ANABRANCH_SRC_ACL_TENSOR_H_

#include <memory>
#include <string>
#include <vector>

#include "aclnn/acl_meta.h"
#include "anabranch/tensor.h"
#include "src/acl/object.h"

// These two names are what the C headers declare.
struct aclTensor final : anabranch::acl::Object {
  static constexpr anabranch::acl::Kind kKind = anabranch::acl::Kind::kTensor;
  aclTensor() : Object(kKind) {}
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  // elements
  std::int64_t offset = 0;            // elements
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_ND;
  std::vector<std::int64_t> storage;
  void* data = nullptr;
};

struct aclTensorList final : anabranch::acl::Object {
  static constexpr anabranch::acl::Kind kKind = anabranch::acl::Kind::kTensorList;
  aclTensorList() : Object(kKind) {}
  std::vector<const aclTensor*> handles;
  std::vector<std::shared_ptr<aclTensor>> tensors;
};

namespace anabranch::acl {

// The library's view of a tensor; dtype kUndefined if the operators have no such element type.
TensorView ToView(const aclTensor& tensor);

// Members of a list; 0 if it is null or no live one.
std::size_t ListSize(const aclTensorList* list);

// The address of the first element of a tensor whose storage is at `storage`.
void* AtOffset(const aclTensor& tensor, void* storage);

// Bytes of an element; 0 for types without whole bytes and unknown ones.
std::size_t ElementBytes(aclDataType dtype);

// "FLOAT16", or the number of an unnamed type.
std::string AclDataTypeName(aclDataType dtype);

// One of the formats that no operator here reads.
bool IsPrivateFormat(aclFormat format);

}  // namespace anabranch::acl

#endif  // ANABRANCH_SRC_ACL_TENSOR_H_
