// The calls on executors: repeatable ones, their destruction, new addresses for their tensors.
#include "src/acl/executor.h"

#include <optional>

#include "src/acl/message.h"
#include "src/acl/tensor.h"

namespace anabranch::acl {
namespace {

enum class Role { kAny, kInput, kOutput };

// What one of the Set*TensorAddr calls asks for.
struct NewAddress {
  const char* call;
  Role role;
  std::size_t index;                    // among the arguments of that role
  std::optional<std::size_t> relative;  // place in the list, of the calls for lists
  void* address;
};

// The argument that an index means, or null.
const Parameter* FindParameter(const aclOpExecutor& executor, const NewAddress& wanted,
                               std::size_t* known) {
  *known = 0;
  for (const Parameter& parameter : executor.arguments) {
    if (wanted.role != Role::kAny && parameter.output != (wanted.role == Role::kOutput)) continue;
    if ((*known)++ == wanted.index) return &parameter;
  }
  return nullptr;
}

int FindView(const aclOpExecutor& executor, const NewAddress& wanted, std::size_t* view) {
  const std::string who = std::string(wanted.call) + ": ";
  std::size_t known = 0;
  const Parameter* parameter = FindParameter(executor, wanted, &known);
  if (parameter == nullptr) {
    return Fail(ACLNN_ERR_PARAM_INVALID, who + "index is " + std::to_string(wanted.index) +
                                             ", expected less than " + std::to_string(known) +
                                             " for " + executor.call);
  }
  if (parameter->list != wanted.relative.has_value()) {
    return Fail(ACLNN_ERR_PARAM_INVALID,
                who + "index " + std::to_string(wanted.index) + " is " + parameter->name + ", a " +
                    (parameter->list ? "list" : "tensor") + ", expected a " +
                    (parameter->list ? "tensor" : "list"));
  }
  const std::size_t place = wanted.relative.value_or(0);
  if (place >= parameter->count) {
    return Fail(ACLNN_ERR_PARAM_INVALID,
                who + "relativeIndex is " + std::to_string(place) + ", expected less than " +
                    std::to_string(parameter->count) + " for " + parameter->name);
  }
  *view = parameter->first + place;
  if (!executor.views[*view].defined()) {
    return Fail(ACLNN_ERR_PARAM_INVALID,
                who + parameter->name + " was null in phase 1, expected an argument with a tensor");
  }
  return ACLNN_SUCCESS;
}

int SetAddress(aclOpExecutor* handle, const NewAddress& wanted, const aclTensor* tensor) {
  const std::string who = std::string(wanted.call) + ": ";
  const std::shared_ptr<aclOpExecutor> executor = Find<aclOpExecutor>(handle);
  if (!executor) {
    return Fail(handle == nullptr ? ACLNN_ERR_PARAM_NULLPTR : ACLNN_ERR_PARAM_INVALID,
                who + "executor is null, unknown or consumed, expected a live one of phase 1");
  }
  const std::lock_guard<std::mutex> lock(executor->mutex);
  std::size_t place = 0;
  if (const int code = FindView(*executor, wanted, &place); code != 0) return code;
  TensorView& view = executor->views[place];
  TensorView given = ToView(*tensor);
  if (given.dtype != view.dtype || given.sizes != view.sizes || given.strides != view.strides) {
    return Fail(ACLNN_ERR_PARAM_INVALID,
                who + "the tensor has shape " + ToString(given.sizes) + " and strides " +
                    ToString(given.strides) + ", expected the shape " + ToString(view.sizes) +
                    ", strides " + ToString(view.strides) + " and dtype of phase 1");
  }
  const std::size_t bytes = DTypeSize(view.dtype);
  if (wanted.address == nullptr && view.numel() != 0) {
    return Fail(ACLNN_ERR_PARAM_NULLPTR, who + "addr is null, expected an address");
  }
  if (reinterpret_cast<std::uintptr_t>(wanted.address) % bytes != 0) {
    return Fail(ACLNN_ERR_PARAM_INVALID,
                who + "addr is not aligned to an element of " + std::to_string(bytes) + " bytes");
  }
  view.data = AtOffset(*tensor, wanted.address);
  executor->plan = nullptr;
  return ACLNN_SUCCESS;
}

aclnnStatus SetTensor(aclOpExecutor* executor, const NewAddress& wanted, const aclTensor* handle) {
  return Guarded(wanted.call, [&]() -> int {
    const std::shared_ptr<aclTensor> tensor = Find<aclTensor>(handle);
    if (!tensor) {
      return Fail(handle == nullptr ? ACLNN_ERR_PARAM_NULLPTR : ACLNN_ERR_PARAM_INVALID,
                  std::string(wanted.call) +
                      ": tensor is null or no live tensor, expected one of aclCreateTensor");
    }
    return SetAddress(executor, wanted, tensor.get());
  });
}

aclnnStatus SetListMember(aclOpExecutor* executor, const NewAddress& wanted,
                          const aclTensorList* handle) {
  return Guarded(wanted.call, [&]() -> int {
    const std::shared_ptr<aclTensorList> list = Find<aclTensorList>(handle);
    if (!list) {
      return Fail(handle == nullptr ? ACLNN_ERR_PARAM_NULLPTR : ACLNN_ERR_PARAM_INVALID,
                  std::string(wanted.call) +
                      ": tensors is null or no live list, expected one of aclCreateTensorList");
    }
    const std::size_t place = wanted.relative.value_or(0);
    if (place >= list->tensors.size()) {
      return Fail(ACLNN_ERR_PARAM_INVALID, std::string(wanted.call) + ": relativeIndex is " +
                                               std::to_string(place) + ", expected less than " +
                                               std::to_string(list->tensors.size()));
    }
    return SetAddress(executor, wanted, list->tensors[place].get());
  });
}

}  // namespace
}  // namespace anabranch::acl

namespace acl = anabranch::acl;
using acl::Role;

extern "C" {

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  return acl::Guarded("aclSetAclOpExecutorRepeatable", [&]() -> int {
    const std::shared_ptr<aclOpExecutor> found = acl::Find<aclOpExecutor>(executor);
    if (!found) {
      return acl::Fail(executor == nullptr ? ACLNN_ERR_PARAM_NULLPTR : ACLNN_ERR_PARAM_INVALID,
                       "aclSetAclOpExecutorRepeatable: executor is null, unknown or consumed, "
                       "expected a fresh one of phase 1");
    }
    const std::lock_guard<std::mutex> lock(found->mutex);
    found->repeatable = true;
    return ACLNN_SUCCESS;
  });
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  return acl::Guarded("aclDestroyAclOpExecutor", [&]() -> int {
    if (executor == nullptr) {
      return acl::Fail(ACLNN_ERR_PARAM_NULLPTR,
                       "aclDestroyAclOpExecutor: executor is null, expected one of phase 1");
    }
    acl::Remove<aclOpExecutor>(executor);  // a consumed one is gone already
    return ACLNN_SUCCESS;
  });
}

aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                             void* addr) {
  return acl::SetTensor(executor, {"aclSetTensorAddr", Role::kAny, index, {}, addr}, tensor);
}

aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                  void* addr) {
  return acl::SetTensor(executor, {"aclSetInputTensorAddr", Role::kInput, index, {}, addr}, tensor);
}

aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                   void* addr) {
  return acl::SetTensor(executor, {"aclSetOutputTensorAddr", Role::kOutput, index, {}, addr},
                        tensor);
}

aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                    const size_t relativeIndex, aclTensorList* tensors,
                                    void* addr) {
  return acl::SetListMember(
      executor, {"aclSetDynamicTensorAddr", Role::kAny, irIndex, relativeIndex, addr}, tensors);
}

aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                         const size_t relativeIndex, aclTensorList* tensors,
                                         void* addr) {
  return acl::SetListMember(
      executor, {"aclSetDynamicInputTensorAddr", Role::kInput, irIndex, relativeIndex, addr},
      tensors);
}

aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                          const size_t relativeIndex, aclTensorList* tensors,
                                          void* addr) {
  return acl::SetListMember(
      executor, {"aclSetDynamicOutputTensorAddr", Role::kOutput, irIndex, relativeIndex, addr},
      tensors);
}

aclnnStatus AclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  return aclSetAclOpExecutorRepeatable(executor);
}

aclnnStatus AclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                             void* addr) {
  return aclSetTensorAddr(executor, index, tensor, addr);
}

aclnnStatus AclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                  void* addr) {
  return aclSetInputTensorAddr(executor, index, tensor, addr);
}

aclnnStatus AclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                   void* addr) {
  return aclSetOutputTensorAddr(executor, index, tensor, addr);
}

aclnnStatus AclSetDynamicTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                    const size_t relativeIndex, aclTensorList* tensors,
                                    void* addr) {
  return aclSetDynamicTensorAddr(executor, irIndex, relativeIndex, tensors, addr);
}

aclnnStatus AclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                         const size_t relativeIndex, aclTensorList* tensors,
                                         void* addr) {
  return aclSetDynamicInputTensorAddr(executor, irIndex, relativeIndex, tensors, addr);
}

aclnnStatus AclSetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                          const size_t relativeIndex, aclTensorList* tensors,
                                          void* addr) {
  return aclSetDynamicOutputTensorAddr(executor, irIndex, relativeIndex, tensors, addr);
}

}  // extern "C"
