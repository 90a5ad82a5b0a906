// The runtime: random sequences of create, use and destroy over a pool of handles of every kind, so
// that calls get handles that are null, dead, of another kind, or no handles at all. What would be
// undefined on any machine (writing to freed memory, waiting in a circle) is left out.
#include <pthread.h>

#include "tests/fuzz/machine.h"

namespace anabranch::fuzz {

int Machine::Call() {
  if (which_ < 20) return CallObjects(which_);
  if (which_ < 40) return CallStreams(which_ - 20);
  if (which_ < 60) return CallMeta(which_ - 40);
  return CallProcess(which_ - 60);
}

int Machine::CallObjects(int which) {
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
                       : number_ % 4 == 2 ? aclrtCreateEventExWithFlag(&slot.handle, 8)
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

int Machine::CallStreams(int which) {
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
      std::byte* to = NextPiece();
      return aclrtMemcpyAsync(to, odd_ ? 1 : kBytes, to + kBytes / 2, number_, ACL_MEMCPY_DEFAULT,
                              First());
    }
    case 14:
      return aclrtMemsetAsync(NextPiece(), odd_ ? 1 : kBytes, number_, number_, First());
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

int Machine::CallProcess(int which) {
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

}  // namespace anabranch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anabranch::fuzz;  // NOLINT(google-build-using-namespace)
  CountCalls("runtime");
  Input in(data, size);
  Input drawn = Input::Drawn(data, size);
  Machine machine;
  int most = 200;
  do machine.Step(&in);
  while (!in.empty() && --most > 0);
  for (int step = 200 * Input::Rounds(data, size); step > 0; --step) machine.Step(&drawn);
  return 0;
}
