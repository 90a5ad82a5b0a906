// A machine that calls the runtime as its input says, on a pool of handles of every kind.
#ifndef ANABRANCH_TESTS_FUZZ_MACHINE_H_
#define ANABRANCH_TESTS_FUZZ_MACHINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>

#include "acl/acl.h"
#include "acl/acl_op.h"
#include "aclnn/acl_meta.h"
#include "aclnn/aclnn_base.h"
#include "tests/fuzz/input.h"

namespace anabranch::fuzz {

constexpr int kSlots = 24;
constexpr std::size_t kBytes = 256;

// Enumerators that do not exist are drawn from what the type can hold: C++ has no others.
enum class Is { kFree, kStream, kEvent, kContext, kMemory, kHost, kOther };

struct Slot {
  void* handle = nullptr;
  Is is = Is::kFree;
  bool may_block = false;  // a stream that may wait for what nobody does
};

// Memory of asynchronous copies: for each a piece that no other stream writes meanwhile; more
// pieces than one input has calls.
inline std::byte arena[4096][2 * kBytes];
inline std::byte* NextPiece() {
  static std::size_t next = 0;
  return arena[next++ % std::size(arena)];
}
inline float tensor_memory[64];

inline std::atomic<int> ran{0};
inline void Count(void* counter) { ++*static_cast<std::atomic<int>*>(counter); }
inline void Throw(void* /*argument*/) { throw std::runtime_error("from a callback"); }

class Machine {
 public:
  Machine() {
    if (aclrtSetDevice(0) != 0) Broken("aclrtSetDevice");
  }
  ~Machine() { EndAll(); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void Step(Input* in) {
    Draw(in);
    const int code = Call();
    if (code != kNoCall) ++calls;
    if (code != 0 && code != kNoCall && *aclGetRecentErrMsg() == '\0') {
      Broken("code " + std::to_string(code) + " without a message");
    }
  }

 private:
  static constexpr int kNoCall = -12345;

  // What the next call can use, drawn in one fixed order: that of arguments differs by compiler.
  void Draw(Input* in) {
    which_ = in->Below(80);
    slot_ = &slots_[in->Below(kSlots)];
    other_ = slots_[in->Below(kSlots)].handle;
    number_ = in->Byte();
    odd_ = in->Chance(16);
    wide_ = in->Chance(8) ? in->Wide() : 0;
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

  int Call();
  int CallObjects(int which);
  int CallStreams(int which);
  int CallMeta(int which);
  int CallProcess(int which);
  // Takes a new tensor, scalar, array, list or executor into the pool; null must have a message.
  int Keep(void* handle);
  int Getter();
  int MakeExecutor();
  int SetAddress();

  Slot slots_[kSlots];
  void* out_ = nullptr;
  int which_ = 0;
  Slot* slot_ = slots_;
  void* other_ = nullptr;
  int number_ = 0;
  bool odd_ = false;
  std::int64_t wide_ = 0;
};

}  // namespace anabranch::fuzz

#endif  // ANABRANCH_TESTS_FUZZ_MACHINE_H_
