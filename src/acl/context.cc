// Devices and contexts.
#include "src/acl/context.h"

#include <pthread.h>

#include <utility>
#include <vector>

#include "src/acl/message.h"
#include "src/acl/per_process.h"
#include "src/acl/profile.h"

namespace anabranch::acl {
namespace {

constexpr std::int32_t kDevices = 1;

// The default context of the one device, with the number of aclrtSetDevice calls that hold it.
struct Device {
  std::mutex mutex;
  void* context = nullptr;
  int holders = 0;
};

constinit PerProcess<Device> device_state;
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { device_state.Abandon(); });

Device& TheDevice() { return device_state.Get(); }

thread_local void* current_context = nullptr;

int CheckDevice(const char* call, std::int32_t device) {
  if (FindProfile() == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, UnknownProfile(call));
  if (device >= 0 && device < kDevices) return ACL_SUCCESS;
  return Fail(ACL_ERROR_RT_INVALID_DEVICEID,
              std::string(call) + ": deviceId is " + std::to_string(device) + ", expected 0");
}

// Out of the registry, and all its streams with it; queued work is finished first.
void EndContext(void* handle) {
  const std::shared_ptr<DeviceContext> context = Remove<DeviceContext>(handle);
  if (!context) return;
  std::vector<std::shared_ptr<Stream>> streams;
  for (const auto& [stream, object] : Handles().All(Kind::kStream)) {
    if (static_cast<const Stream&>(*object).owner != handle) continue;
    streams.push_back(Remove<Stream>(stream));
  }
  {
    const std::lock_guard<std::mutex> lock(context->mutex);
    streams.push_back(std::move(context->default_stream));
  }
  // All are told before the first is waited for: one may wait for an event of another.
  for (const std::shared_ptr<Stream>& stream : streams) {
    if (stream) stream->End(false);
  }
}

int SetDevice(std::int32_t id) {
  if (const int code = CheckDevice("aclrtSetDevice", id); code != 0) return code;
  Device& device = TheDevice();
  const std::lock_guard<std::mutex> lock(device.mutex);
  if (device.holders == 0) device.context = Handles().Add(std::make_shared<DeviceContext>());
  ++device.holders;
  current_context = device.context;
  return ACL_SUCCESS;
}

int ResetDevice(std::int32_t id) {
  constexpr char kCall[] = "aclrtResetDevice";
  if (const int code = CheckDevice(kCall, id); code != 0) return code;
  void* last = nullptr;
  {
    Device& device = TheDevice();
    const std::lock_guard<std::mutex> lock(device.mutex);
    if (device.holders == 0) {
      return Fail(ACL_ERROR_RT_PARAM_INVALID,
                  std::string(kCall) + ": device 0 is not set, expected aclrtSetDevice before");
    }
    if (--device.holders == 0) last = std::exchange(device.context, nullptr);
  }
  if (last != nullptr) EndContext(last);
  return ACL_SUCCESS;
}

int ResetDeviceForce(std::int32_t id) {
  if (const int code = CheckDevice("aclrtResetDeviceForce", id); code != 0) return code;
  void* last = nullptr;
  {
    Device& device = TheDevice();
    const std::lock_guard<std::mutex> lock(device.mutex);
    device.holders = 0;
    last = std::exchange(device.context, nullptr);
  }
  if (last != nullptr) EndContext(last);
  return ACL_SUCCESS;
}

int DestroyContext(aclrtContext handle) {
  constexpr char kCall[] = "aclrtDestroyContext";
  if (handle == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM,
                std::string(kCall) + ": context is null, expected a context");
  }
  if (!Find<DeviceContext>(handle)) {
    return Fail(
        ACL_ERROR_RT_INVALID_HANDLE,
        std::string(kCall) + ": context is no live context, expected one of aclrtCreateContext");
  }
  {
    Device& device = TheDevice();
    const std::lock_guard<std::mutex> lock(device.mutex);
    if (device.context == handle) {
      return Fail(ACL_ERROR_RT_PARAM_INVALID,
                  std::string(kCall) +
                      ": context is a device's default one, expected aclrtResetDevice for it");
    }
  }
  EndContext(handle);
  return ACL_SUCCESS;
}

// Every stream of the device, in whatever context.
int SynchronizeDevice() {
  constexpr char kCall[] = "aclrtSynchronizeDevice";
  if (!CurrentContext()) return NoContext(kCall);
  std::vector<std::shared_ptr<Stream>> streams;
  for (const auto& [handle, object] : Handles().All(Kind::kStream)) {
    streams.push_back(std::static_pointer_cast<Stream>(object));
  }
  for (const auto& [handle, object] : Handles().All(Kind::kContext)) {
    const auto context = std::static_pointer_cast<DeviceContext>(object);
    const std::lock_guard<std::mutex> lock(context->mutex);
    if (context->default_stream) streams.push_back(context->default_stream);
  }
  int first = ACL_SUCCESS;
  for (const std::shared_ptr<Stream>& stream : streams) {
    const int code = WaitFor(kCall, stream.get(), -1, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    if (first == ACL_SUCCESS) first = code;
  }
  return first;
}

}  // namespace

std::shared_ptr<DeviceContext> CurrentContext() { return Find<DeviceContext>(current_context); }

int NoContext(const char* call) {
  return Fail(
      ACL_ERROR_RT_CONTEXT_NULL,
      std::string(call) +
          ": this thread has no context, expected aclrtSetDevice or aclrtSetCurrentContext");
}

std::shared_ptr<Stream> FindStream(const char* call, aclrtStream handle, int* code) {
  if (handle != nullptr) {
    std::shared_ptr<Stream> stream = Find<Stream>(handle);
    if (!stream) {
      *code =
          Fail(ACL_ERROR_RT_INVALID_HANDLE,
               std::string(call) + ": stream is no live stream, expected one of aclrtCreateStream");
    }
    return stream;
  }
  const std::shared_ptr<DeviceContext> context = CurrentContext();
  if (!context) {
    *code = NoContext(call);
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(context->mutex);
  if (!context->default_stream) context->default_stream = std::make_shared<Stream>(current_context);
  return context->default_stream;
}

int WaitFor(const char* call, Stream* stream, std::int32_t milliseconds, int timeout_code) {
  if (stream->on_worker()) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                std::string(call) +
                    ": called by work of the stream itself, expected a call from elsewhere");
  }
  Outcome outcome;
  if (!stream->Synchronize(DeadlineAfter(milliseconds), &outcome)) {
    return Fail(timeout_code, std::string(call) + ": work was not done after " +
                                  std::to_string(milliseconds) + " ms");
  }
  if (outcome.code == 0) return ACL_SUCCESS;
  // The worker that caught an exception may not have had the memory for a message.
  if (!outcome.message.empty()) return Fail(outcome.code, outcome.message);
  return Fail(outcome.code, std::string(call) + (outcome.code == ACL_ERROR_BAD_ALLOC
                                                     ? ": host memory was exhausted in queued work"
                                                     : ": queued work threw an exception"));
}

}  // namespace anabranch::acl

namespace acl = anabranch::acl;

extern "C" {

aclError aclrtSetDevice(int32_t deviceId) {
  return acl::Guarded("aclrtSetDevice", [&] { return acl::SetDevice(deviceId); });
}

aclError aclrtResetDevice(int32_t deviceId) {
  return acl::Guarded("aclrtResetDevice", [&] { return acl::ResetDevice(deviceId); });
}

aclError aclrtResetDeviceForce(int32_t deviceId) {
  return acl::Guarded("aclrtResetDeviceForce", [&] { return acl::ResetDeviceForce(deviceId); });
}

aclError aclrtGetDevice(int32_t* deviceId) {
  return acl::Guarded("aclrtGetDevice", [&]() -> int {
    if (deviceId == nullptr) {
      return acl::Fail(ACL_ERROR_INVALID_PARAM,
                       "aclrtGetDevice: deviceId is null, expected an address");
    }
    if (!acl::CurrentContext()) return acl::NoContext("aclrtGetDevice");
    *deviceId = 0;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetDeviceCount(uint32_t* count) {
  if (count == nullptr) {
    return acl::Fail(ACL_ERROR_INVALID_PARAM,
                     "aclrtGetDeviceCount: count is null, expected an address");
  }
  *count = acl::kDevices;
  return ACL_SUCCESS;
}

aclError aclrtSynchronizeDevice(void) {
  return acl::Guarded("aclrtSynchronizeDevice", [] { return acl::SynchronizeDevice(); });
}

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  return acl::Guarded("aclrtCreateContext", [&]() -> int {
    if (context == nullptr) {
      return acl::Fail(ACL_ERROR_INVALID_PARAM,
                       "aclrtCreateContext: context is null, expected an address");
    }
    const int code = acl::CheckDevice("aclrtCreateContext", deviceId);
    if (code != 0) return code;
    *context = acl::Handles().Add(std::make_shared<acl::DeviceContext>());
    acl::current_context = *context;
    return ACL_SUCCESS;
  });
}

aclError aclrtDestroyContext(aclrtContext context) {
  return acl::Guarded("aclrtDestroyContext", [&] { return acl::DestroyContext(context); });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return acl::Guarded("aclrtSetCurrentContext", [&]() -> int {
    if (!acl::Find<acl::DeviceContext>(context)) {
      return acl::Fail(
          context == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_RT_INVALID_HANDLE,
          "aclrtSetCurrentContext: context is null or no live context, expected a context");
    }
    acl::current_context = context;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  return acl::Guarded("aclrtGetCurrentContext", [&]() -> int {
    if (context == nullptr) {
      return acl::Fail(ACL_ERROR_INVALID_PARAM,
                       "aclrtGetCurrentContext: context is null, expected an address");
    }
    if (!acl::CurrentContext()) return acl::NoContext("aclrtGetCurrentContext");
    *context = acl::current_context;
    return ACL_SUCCESS;
  });
}

}  // extern "C"
