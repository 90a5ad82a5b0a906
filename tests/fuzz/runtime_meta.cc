// The calls on tensors, scalars, arrays, lists and executors.
#include "aclnnop/aclnn_mhc_post.h"
#include "tests/fuzz/machine.h"

namespace anabranch::fuzz {

int Machine::Keep(void* handle) {
  if (handle == nullptr)
    return *aclGetRecentErrMsg() == '\0' ? (Broken("null without a message"), 0) : 0;
  Fresh(Is::kOther).handle = handle;
  return 0;
}

int Machine::CallMeta(int which) {
  static const std::int64_t kSizes[] = {1, 2, 4, 8};
  const std::uint64_t count = wide_ != 0 ? static_cast<std::uint64_t>(wide_) : 4;
  switch (which) {
    case 0:
    case 1:
      return Keep(aclCreateTensor(kSizes, 4, static_cast<aclDataType>(number_ % 30), nullptr,
                                  odd_ ? wide_ : 0, ACL_FORMAT_ND, kSizes, 4, tensor_memory));
    case 2: {
      const aclTensor* members[3] = {As<aclTensor>(), static_cast<aclTensor*>(Second()),
                                     As<aclTensor>()};
      return Keep(aclCreateTensorList(members, static_cast<std::uint64_t>(number_ % 4)));
    }
    case 3:
      return Keep(aclCreateScalar(tensor_memory, static_cast<aclDataType>(number_ % 45 - 1)));
    case 4: {
      const aclScalar* members[2] = {As<aclScalar>(), static_cast<aclScalar*>(Second())};
      return Keep(aclCreateScalarList(members, static_cast<std::uint64_t>(number_ % 3)));
    }
    case 5:
      if (count > 4 && count <= 1u << 20) return kNoCall;
      return Keep(aclCreateIntArray(odd_ ? nullptr : kSizes, count));
    case 6:
      if (count > 4 && count <= 1u << 20) return kNoCall;
      return Keep(aclCreateFloatArray(odd_ ? nullptr : tensor_memory, count));
    case 7: {
      static const bool kBools[] = {true, false, true, true};
      if (count > 4 && count <= 1u << 20) return kNoCall;
      return Keep(aclCreateBoolArray(kBools, count));
    }
    case 8:
      return aclDestroyTensor(As<aclTensor>());
    case 9:
      return aclDestroyTensorList(As<aclTensorList>());
    case 10:
      return number_ % 2 == 1 ? aclDestroyScalarList(As<aclScalarList>())
                              : aclDestroyScalar(As<aclScalar>());
    case 11:
      return number_ % 2 == 1 ? aclDestroyIntArray(As<aclIntArray>())
                              : aclDestroyFloatArray(As<aclFloatArray>());
    case 12:
      return aclDestroyBoolArray(As<aclBoolArray>());
    case 13:
      return Getter();
    case 14: {
      std::uint64_t size = 0;
      std::uint64_t* to = odd_ ? nullptr : &size;
      switch (number_ % 5) {
        case 0:
          return aclGetIntArraySize(As<aclIntArray>(), to);
        case 1:
          return aclGetFloatArraySize(As<aclFloatArray>(), to);
        case 2:
          return aclGetBoolArraySize(As<aclBoolArray>(), to);
        case 3:
          return aclGetTensorListSize(As<aclTensorList>(), to);
        default:
          return aclGetScalarListSize(As<aclScalarList>(), to);
      }
    }
    case 15:
      return MakeExecutor();
    case 16:
      return SetAddress();
    case 17: {
      auto* executor = As<aclOpExecutor>();
      return number_ % 2 == 1 ? aclSetAclOpExecutorRepeatable(executor)
                              : aclDestroyAclOpExecutor(executor);
    }
    case 18: {
      auto* executor = As<aclOpExecutor>();
      return aclnnMhcPost(nullptr, 0, executor, FreeStream());
    }
    default:
      return aclDataTypeSize(static_cast<aclDataType>(number_ % 64)) > 16 ? (Broken("size"), 0) : 0;
  }
}

int Machine::Getter() {
  std::int64_t* values = nullptr;
  std::uint64_t count = 0;
  const auto* tensor = As<aclTensor>();
  int code = 0;
  switch (number_ % 6) {
    case 0:
      code = aclGetViewShape(tensor, &values, &count);
      break;
    case 1:
      code = aclGetViewStrides(tensor, &values, odd_ ? nullptr : &count);
      break;
    case 2:
      code = aclGetStorageShape(tensor, &values, &count);
      break;
    case 3: {
      std::int64_t offset = 0;
      code = aclGetViewOffset(tensor, &offset);
      break;
    }
    case 4: {
      aclFormat format;
      code = aclGetFormat(tensor, odd_ ? nullptr : &format);
      break;
    }
    default: {
      aclDataType type;
      code = aclGetDataType(tensor, &type);
    }
  }
  delete[] values;
  return code;
}

// mhc_post on x [2, 1, 4], without h_res.
int Machine::MakeExecutor() {
  static const std::int64_t kX[] = {2, 1, 4};
  static const std::int64_t kH[] = {2, 4};
  static const std::int64_t kP[] = {2, 1};
  const auto make = [](const std::int64_t* sizes, std::uint64_t rank, float* data) {
    return aclCreateTensor(sizes, rank, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, sizes, rank, data);
  };
  aclTensor* x = make(kX, 3, tensor_memory);
  aclTensor* h = make(kH, 2, tensor_memory + 8);
  aclTensor* p = make(kP, 2, tensor_memory + 16);
  aclTensor* y = make(kX, 3, tensor_memory + 24);
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  const int code = aclnnMhcPostGetWorkspaceSize(x, nullptr, h, p, y, &size, &executor);
  if (code != 0 || size != 0) Broken("mhc_post");
  for (aclTensor* tensor : {h, p, y}) aclDestroyTensor(tensor);
  Fresh(Is::kOther).handle = x;
  Fresh(Is::kOther).handle = executor;
  return 0;
}

int Machine::SetAddress() {
  auto* executor = As<aclOpExecutor>();
  auto* tensor = static_cast<aclTensor*>(Second());
  auto* list = static_cast<aclTensorList*>(Second());
  const auto index = static_cast<std::size_t>(odd_ ? wide_ : number_ % 6);
  const auto place = static_cast<std::size_t>(odd_ ? wide_ : number_ % 2);
  void* address = odd_ ? nullptr : tensor_memory + 32;
  switch (number_ % 6) {
    case 0:
      return aclSetTensorAddr(executor, index, tensor, address);
    case 1:
      return aclSetInputTensorAddr(executor, index, tensor, address);
    case 2:
      return AclSetOutputTensorAddr(executor, index, tensor, address);
    case 3:
      return aclSetDynamicTensorAddr(executor, index, place, list, address);
    case 4:
      return AclSetDynamicInputTensorAddr(executor, index, place, list, address);
    default:
      return aclSetDynamicOutputTensorAddr(executor, index, place, list, address);
  }
}

}  // namespace anabranch::fuzz
