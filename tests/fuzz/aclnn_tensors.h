// The tensors and lists of a fuzzed call as handles of the C API, some of which lie.
#ifndef ANABRANCH_TESTS_FUZZ_ACLNN_TENSORS_H_
#define ANABRANCH_TESTS_FUZZ_ACLNN_TENSORS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "tests/fuzz/call.h"

namespace anabranch::fuzz {

inline aclDataType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ACL_FLOAT;
    case DType::kFloat16:
      return ACL_FLOAT16;
    case DType::kBFloat16:
      return ACL_BF16;
    case DType::kFloat64:
      return ACL_DOUBLE;
    default:
      return ACL_INT64;
  }
}

// The handles of one call.
class Tensors {
 public:
  Tensors(Input* in, RandomCall* call) : in_(in), call_(call) {
    for (Argument& a : call->arguments()) handles_.push_back(Create(a));
    for (aclTensor* handle : handles_) given_.push_back(in->Chance(3) ? Wrong() : handle);
    for (const char* name : {"blocks", "grad_blocks"}) lists_.push_back(MakeList(name));
  }
  ~Tensors() {
    for (aclTensorList* list : lists_) aclDestroyTensorList(list);
    for (aclTensor* tensor : handles_) aclDestroyTensor(tensor);
    aclDestroyScalar(scalar_);
  }
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;

  // Phase 2 may run: nothing that was described is a lie.
  bool honest() const { return honest_ && call_->real(); }

  // The handle that the call gets; now and then it is not the right one.
  aclTensor* operator()(const char* name) const {
    for (std::size_t k = 0; k < given_.size(); ++k) {
      if (IsNamed(call_->arguments()[k], name)) return given_[k];
    }
    return nullptr;
  }

  // Phase 1 gets a tensor of that other description; the memory is never there.
  void Exchange(const Argument& a) {
    const auto k = static_cast<std::size_t>(&a - call_->arguments().data());
    given_[k] = Create(a);
    exchanged_ = k;
    honest_ = false;
  }
  void Undo() {
    aclDestroyTensor(given_[exchanged_]);
    given_[exchanged_] = handles_[exchanged_];
  }

  // The list of the tensors name[0], name[1], ...
  aclTensorList* List(const char* name) const {
    return lists_[std::strcmp(name, "blocks") == 0 ? 0 : 1];
  }

 private:
  aclTensor* Create(const Argument& a) {
    static constexpr aclDataType kTypes[] = {ACL_INT4, ACL_BOOL, ACL_COMPLEX128, ACL_DT_UNDEFINED,
                                             static_cast<aclDataType>(63)};
    static constexpr aclFormat kFormats[] = {ACL_FORMAT_NCHW, ACL_FORMAT_FRACTAL_NZ,
                                             ACL_FORMAT_NC1HWC0, ACL_FORMAT_UNDEFINED,
                                             static_cast<aclFormat>(63)};
    if (!a.view.defined()) return nullptr;
    std::vector<std::int64_t> sizes(a.view.sizes.begin(),
                                    a.view.sizes.begin() + std::min(a.view.rank(), kMaxRank));
    while (static_cast<int>(sizes.size()) < a.view.rank()) sizes.push_back(1);
    std::vector<std::int64_t> strides(a.view.strides.values, a.view.strides.values + kMaxRank);
    strides.resize(std::max<std::size_t>(sizes.size(), 1));
    std::int64_t storage[2] = {a.span, 1};
    std::int64_t offset = a.low;
    auto* data = static_cast<std::byte*>(a.view.data);
    const auto element = static_cast<std::int64_t>(DTypeSize(a.view.dtype));
    if (data != nullptr && a.real) data -= a.low * element;
    aclDataType dtype = TypeOf(a.view.dtype);
    aclFormat format = ACL_FORMAT_ND;
    bool null_strides = a.view.strides == ContiguousStrides(a.view.sizes) && in_->Chance(128);
    if (in_->Chance(6)) {
      honest_ = false;  // for simplicity: not all of these are lies
      switch (in_->Below(7)) {
        case 0:
          storage[in_->Below(2)] = in_->Wide();
          break;
        case 1:
          offset = in_->Wide();
          break;
        case 2:
          dtype = in_->Pick(kTypes);
          break;
        case 3:
          format = in_->Pick(kFormats);
          break;
        case 4:
          storage[0] -= 1;
          break;
        case 5:
          data = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(in_->Wide()));
          break;
        default:
          null_strides = true;
      }
    }
    ++calls;
    return aclCreateTensor(sizes.data(), sizes.size(), dtype,
                           null_strides ? nullptr : strides.data(), offset, format, storage,
                           in_->Chance(128) ? 2 : (storage[1] == 1 ? 1 : 2), data);
  }

  aclTensor* Wrong() {
    switch (in_->Below(4)) {
      case 0:
        return nullptr;
      case 1: {  // destroyed already
        aclTensor* dead =
            aclCreateTensor(nullptr, 0, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &one_, 1, &one_);
        aclDestroyTensor(dead);
        return dead;
      }
      case 2:  // something else that lives
        if (scalar_ == nullptr) scalar_ = aclCreateScalar(&one_, ACL_INT64);
        return reinterpret_cast<aclTensor*>(scalar_);
      default:
        return reinterpret_cast<aclTensor*>(static_cast<std::uintptr_t>(in_->Wide()));
    }
  }

  // The list owns its members from now on.
  aclTensorList* MakeList(const char* name) {
    const std::string start = std::string(name) + "[";
    std::vector<const aclTensor*> members;
    for (std::size_t k = 0; k < given_.size(); ++k) {
      if (call_->arguments()[k].spec.name.rfind(start, 0) == 0) members.push_back(given_[k]);
    }
    if (in_->Chance(2)) return nullptr;
    if (in_->Chance(2) && !handles_.empty()) return reinterpret_cast<aclTensorList*>(handles_[0]);
    if (in_->Chance(4) && !members.empty()) members.resize(members.size() * 40, members[0]);
    return aclCreateTensorList(members.data(), members.size());
  }

  Input* in_;
  RandomCall* call_;
  std::vector<aclTensor*> handles_;
  std::vector<aclTensor*> given_;
  std::vector<aclTensorList*> lists_;
  std::size_t exchanged_ = 0;
  aclScalar* scalar_ = nullptr;
  std::int64_t one_ = 1;
  bool honest_ = true;
};

}  // namespace anabranch::fuzz

#endif  // ANABRANCH_TESTS_FUZZ_ACLNN_TENSORS_H_
