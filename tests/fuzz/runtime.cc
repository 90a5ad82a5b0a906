// The runtime: random sequences of create, use and destroy over a pool of handles of every kind, so
// that calls get handles that are null, dead, of another kind, or no handles at all. What would be
// undefined on any machine (writing to freed memory, waiting in a circle) is left out.
#include <pthread.h>

#include <atomic>
#include <stdexcept>

#include "acl/acl.h"
#include "acl/acl_op.h"
#include "aclnn/acl_meta.h"
#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_mhc_post.h"
#include "tests/fuzz/input.h"

namespace anabranch::fuzz {
namespace {

constexpr int kSlots = 24;
constexpr std::size_t kBytes = 256;

// Enumerators that do not exist are drawn from what the type can hold: C++ has no others.
enum class Is { kFree, kStream, kEvent, kContext, kMemory, kHost, kOther };

struct Slot {
  void* handle = nullptr;
  Is is = Is::kFree;
  bool may_block = false;  // a stream that may wait for what nobody does
};

// Memory that the stream of a slot may write to at any time.
std::byte arena[kSlots][2 * kBytes];
float tensor_memory[64];

std::atomic<int> ran{0};
void Count(void* counter) { ++*static_cast<std::atomic<int>*>(counter); }
void Throw(void* /*argument*/) { throw std::runtime_error("from a callback"); }

class Machine {
 public:
  explicit Machine(Input* in) : in_(in) {
    if (aclrtSetDevice(0) != 0) Broken("aclrtSetDevice");
  }
  ~Machine() { EndAll(); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void Step() {
    ++calls;
    Draw();
    const int code = Call();
    if (code != 0 && code != kNoCall && *aclGetRecentErrMsg() == '\0') {
      Broken("code " + std::to_string(code) + " without a message");
    }
  }

 private:
  static constexpr int kNoCall = -12345;

  // What the next call can use, drawn in one fixed order: that of arguments differs by compiler.
  void Draw() {
    which_ = in_->Below(80);
    slot_ = &slots_[in_->Below(kSlots)];
    other_ = slots_[in_->Below(kSlots)].handle;
    number_ = in_->Byte();
    odd_ = in_->Chance(16);
    wide_ = in_->Chance(8) ? in_->Wide() : 0;
  }
  // Handles of any kind, or no handles at all.
  void* First() const {
    return wide_ != 0 ? reinterpret_cast<void*>(static_cast<std::uintptr_t>(wide_)) : slot_->handle;
  }
  void* Second() const { return other_; }
  template <class T>
  T* As() const {
    return static_cast<T*>(First());
  }
  // A slot for something new; what it held is forgotten by the program but stays alive, unless it
  // must be ended in the right order.
  Slot& Fresh(Is is) {
    for (Slot& slot : slots_) {
      if (slot.is != Is::kFree) continue;
      slot.is = is;
      return slot;
    }
    End(*slot_);
    slot_->is = is;
    return *slot_;
  }
  bool HasStream() const { return slot_->is == Is::kStream; }
  // A stream that nothing can hang on: a live one that cannot block, or the default one.
  void* FreeStream() const { return HasStream() && !slot_->may_block ? slot_->handle : nullptr; }

  void End(Slot& slot) {
    switch (slot.is) {
      case Is::kStream:
        aclrtDestroyStreamForce(slot.handle);
        break;
      case Is::kEvent:
        aclrtDestroyEvent(slot.handle);
        break;
      case Is::kMemory:
        aclrtFree(slot.handle);
        break;
      case Is::kHost:
        aclrtFreeHost(slot.handle);
        break;
      case Is::kContext:
        EndStreams();
        aclrtDestroyContext(slot.handle);
        break;
      case Is::kOther:
        EndOther(slot.handle);
        break;
      case Is::kFree:
        break;
    }
    slot = Slot();
  }
  static void EndOther(void* handle) {
    aclDestroyTensorList(static_cast<aclTensorList*>(handle));
    aclDestroyTensor(static_cast<aclTensor*>(handle));
    aclDestroyScalarList(static_cast<aclScalarList*>(handle));
    aclDestroyScalar(static_cast<aclScalar*>(handle));
    aclDestroyIntArray(static_cast<aclIntArray*>(handle));
    aclDestroyFloatArray(static_cast<aclFloatArray*>(handle));
    aclDestroyBoolArray(static_cast<aclBoolArray*>(handle));
    if (handle != nullptr) aclDestroyAclOpExecutor(static_cast<aclOpExecutor*>(handle));
  }
  void EndStreams() {
    for (Slot& slot : slots_) {
      if (slot.is == Is::kStream) End(slot);
    }
  }
  void EndAll() {
    EndStreams();
    for (Slot& slot : slots_) End(slot);
    aclrtResetDeviceForce(0);
    aclFinalize();
    aclGetRecentErrMsg();
  }

  int Call() {
    if (which_ < 20) return CallObjects(which_);
    if (which_ < 40) return CallStreams(which_ - 20);
    if (which_ < 60) return CallMeta(which_ - 40);
    return CallProcess(which_ - 60);
  }

  int CallObjects(int which) {
    switch (which) {
      case 0:
      case 1: {
        Slot& slot = Fresh(Is::kStream);
        const int code = number_ % 4 == 1 ? aclrtCreateStreamWithConfig(&slot.handle, 3, number_)
                                          : aclrtCreateStream(&slot.handle);
        if (code != 0) slot = Slot();
        return code;
      }
      case 2:
      case 3: {
        Slot& slot = Fresh(Is::kEvent);
        const int code = number_ % 4 == 1   ? aclrtCreateEventWithFlag(&slot.handle, number_)
                         : number_ % 4 == 1 ? aclrtCreateEventExWithFlag(&slot.handle, 8)
                                            : aclrtCreateEvent(&slot.handle);
        if (code != 0) slot = Slot();
        return code;
      }
      case 4: {
        Slot& slot = Fresh(Is::kContext);
        const int code = aclrtCreateContext(&slot.handle, odd_ ? number_ : 0);
        if (code != 0) slot = Slot();
        return code;
      }
      case 5:
      case 6: {
        Slot& slot = Fresh(which == 5 ? Is::kMemory : Is::kHost);
        const std::size_t size = odd_ ? static_cast<std::size_t>(wide_) | 1u << 31 : kBytes;
        const bool huge = size > (std::size_t{1} << 40);
        if (size != kBytes && !huge) return slot = Slot(), kNoCall;
        const int code = which == 5 ? aclrtMalloc(&slot.handle, size,
                                                  static_cast<aclrtMemMallocPolicy>(number_ % 10))
                                    : aclrtMallocHost(&slot.handle, size);
        if (code != 0) slot = Slot();
        if (code == 0 && huge) Broken("more memory than there is");
        return code;
      }
      case 7:
        return aclrtFree(nullptr);
      case 8:
      case 9: {  // the right destroy call, and once more
        Slot& slot = *slot_;
        const Slot old = slot;
        End(slot);
        return old.is == Is::kEvent    ? aclrtDestroyEvent(old.handle)
               : old.is == Is::kStream ? aclrtDestroyStream(old.handle)
               : old.is == Is::kMemory ? aclrtFree(old.handle)
               : old.is == Is::kHost   ? aclrtFreeHost(old.handle)
                                       : kNoCall;
      }
      case 10: {  // the wrong destroy call
        const Slot& slot = *slot_;
        if (slot.is == Is::kStream) return aclrtDestroyEvent(slot.handle);
        if (slot.is == Is::kContext) return aclrtDestroyStream(slot.handle);
        if (slot.is == Is::kMemory) return aclrtFreeHost(slot.handle);
        if (slot.is == Is::kHost) return aclrtFree(slot.handle);
        return aclrtDestroyContext(slot.handle);
      }
      case 11:
        return aclrtSetCurrentContext(First());
      case 12:
        return aclrtGetCurrentContext(odd_ ? nullptr : &out_);
      case 13:
        return aclrtSetDevice(odd_ ? number_ : 0);
      case 14: {
        EndStreams();
        return number_ % 2 == 1 ? aclrtResetDevice(odd_ ? 1 : 0) : aclrtResetDeviceForce(0);
      }
      case 15: {
        std::int32_t device = 0;
        return aclrtGetDevice(odd_ ? nullptr : &device);
      }
      case 16: {
        if (!HasStream() || slot_->may_block) return kNoCall;
        const int code = aclrtDestroyStream(slot_->handle);
        *slot_ = Slot();
        return code;
      }
      default: {
        Slot& slot = *slot_;
        if (slot.is == Is::kStream || slot.is == Is::kContext) return kNoCall;
        End(slot);
        return 0;
      }
    }
  }

  int CallStreams(int which) {
    switch (which) {
      case 0:
      case 1:
        return aclrtRecordEvent(Second(), FreeStream());
      case 2: {
        return HasStream() ? aclrtRecordEvent(Second(), slot_->handle) : kNoCall;
      }
      case 3: {
        if (!HasStream()) return kNoCall;
        slot_->may_block = true;
        return aclrtStreamWaitEvent(slot_->handle, Second());
      }
      case 4:
        return aclrtSynchronizeStreamWithTimeout(First(), odd_ ? -7 : 0);
      case 5: {
        if (!HasStream() || slot_->may_block) return kNoCall;
        return aclrtSynchronizeStream(slot_->handle);
      }
      case 6:
        return aclrtSynchronizeEventWithTimeout(First(), 0);
      case 7: {
        aclrtEventRecordedStatus status;
        return aclrtQueryEventStatus(First(), odd_ ? nullptr : &status);
      }
      case 8: {
        aclrtEventStatus status;
        return aclrtQueryEvent(First(), odd_ ? nullptr : &status);
      }
      case 9: {
        aclrtStreamStatus status;
        return aclrtStreamQuery(First(), odd_ ? nullptr : &status);
      }
      case 10: {
        float ms = 0;
        return aclrtEventElapsedTime(odd_ ? nullptr : &ms, First(), Second());
      }
      case 11:
        return aclrtResetEvent(Second(), FreeStream());
      case 12: {
        if (!HasStream()) return kNoCall;
        return aclrtLaunchHostFunc(slot_->handle, number_ % 4 == 1 ? Throw : Count, &ran);
      }
      case 13: {
        std::byte* to = arena[slot_ - slots_];
        return aclrtMemcpyAsync(to, odd_ ? 1 : kBytes, to + kBytes / 2, number_, ACL_MEMCPY_DEFAULT,
                                First());
      }
      case 14:
        return aclrtMemsetAsync(arena[slot_ - slots_], odd_ ? 1 : kBytes, number_, number_,
                                First());
      case 15: {
        const auto self = static_cast<std::uint64_t>(pthread_self());
        return aclrtSubscribeReport(odd_ ? 5 : self, First());
      }
      case 16: {
        if (!HasStream()) return kNoCall;
        slot_->may_block = true;
        return aclrtLaunchCallback(Count, &ran, static_cast<aclrtCallbackBlockType>(number_ % 2),
                                   slot_->handle);
      }
      case 17:
        return aclrtProcessReport(odd_ ? -9 : 0);
      case 18:
        return aclrtUnSubscribeReport(static_cast<std::uint64_t>(pthread_self()), First());
      default: {
        for (const Slot& slot : slots_) {
          if (slot.may_block) return kNoCall;
        }
        return aclrtSynchronizeDevice();
      }
    }
  }

  int Keep(void* handle) {
    if (handle == nullptr)
      return *aclGetRecentErrMsg() == '\0' ? (Broken("null without a message"), 0) : 0;
    Fresh(Is::kOther).handle = handle;
    return 0;
  }

  int CallMeta(int which) {
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
        return aclDataTypeSize(static_cast<aclDataType>(number_ % 64)) > 16 ? (Broken("size"), 0)
                                                                            : 0;
    }
  }

  int Getter() {
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
  int MakeExecutor() {
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

  int SetAddress() {
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

  int CallProcess(int which) {
    std::int64_t value = 0;
    const auto option = static_cast<aclSysParamOpt>(number_ % 4);
    switch (which) {
      case 0:
        return aclInit(number_ % 4 == 1 ? "/nowhere/at/all" : nullptr);
      case 1:
        return aclFinalize();
      case 2: {
        std::uint64_t left = 0;
        return aclFinalizeReference(number_ % 4 == 1 ? nullptr : &left);
      }
      case 3:
        return aclrtSetSysParamOpt(option, number_);
      case 4:
        return aclrtGetSysParamOpt(option, odd_ ? nullptr : &value);
      case 5:
        return aclrtCtxSetSysParamOpt(option, number_);
      case 6:
        return aclrtCtxGetSysParamOpt(option, odd_ ? nullptr : &value);
      case 7:
        return aclrtGetLastError(ACL_RT_THREAD_LEVEL) == 1 ? 0 : kNoCall;
      case 8:
        return aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL) == 1 ? 0 : kNoCall;
      case 9: {
        std::size_t free = 0;
        std::size_t total = 0;
        if (!odd_) return kNoCall;  // reads a file: slow
        return aclrtGetMemInfo(static_cast<aclrtMemAttr>(number_ % 9), &free,
                               odd_ ? nullptr : &total);
      }
      case 10: {
        std::uint32_t count = 0;
        return aclrtGetDeviceCount(odd_ ? nullptr : &count);
      }
      case 11: {
        aclrtRunMode mode;
        return aclrtGetRunMode(odd_ ? nullptr : &mode);
      }
      case 12:
        return *aclrtGetSocName() == '\0' ? (Broken("no SoC name"), 0) : 0;
      case 13: {  // memory of the program, copied at once
        const Slot& slot = *slot_;
        const bool memory = slot.is == Is::kMemory || slot.is == Is::kHost;
        std::byte buffer[kBytes] = {};
        const auto kind = static_cast<aclrtMemcpyKind>(number_ % 8);
        const auto most = static_cast<std::size_t>(number_ % kBytes);
        return aclrtMemcpy(memory ? slot.handle : nullptr, most, buffer,
                           static_cast<std::size_t>(number_ % kBytes), kind);
      }
      case 14: {
        const Slot& slot = *slot_;
        const bool memory = slot.is == Is::kMemory || slot.is == Is::kHost;
        return aclrtMemset(memory ? slot.handle : nullptr, kBytes, number_,
                           static_cast<std::size_t>(number_ % 400));
      }
      case 15: {
        const auto bits = static_cast<aclFloat16>(which_ * 7 << 8 ^ number_ << 4 ^ number_);
        const float wide = aclFloat16ToFloat(bits);
        const bool finite = (bits & 0x7c00) != 0x7c00;
        if (finite && aclFloatToFloat16(wide) != bits) Broken("half floats");
        return 0;
      }
      case 16:
        return aclnnInit(number_ % 4 == 1 ? "/nowhere" : nullptr);
      case 17:
        return aclnnFinalize();
      default:
        return kNoCall;
    }
  }

  Input* in_;
  Slot slots_[kSlots];
  void* out_ = nullptr;
  int which_ = 0;
  Slot* slot_ = slots_;
  void* other_ = nullptr;
  int number_ = 0;
  bool odd_ = false;
  std::int64_t wide_ = 0;
};

}  // namespace
}  // namespace anabranch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anabranch::fuzz;  // NOLINT(google-build-using-namespace)
  CountCalls("runtime");
  Input in(data, size);
  Machine machine(&in);
  int most = 200;
  do machine.Step();
  while (!in.empty() && --most > 0);
  return 0;
}
