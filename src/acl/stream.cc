#include "src/acl/stream.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/acl/message.h"
#include "src/acl/profile.h"

namespace anabranch::acl {

Stream::Stream() : Object(kKind), worker_([this] { Work(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  // The last owner may be work that ran on this very stream.
  if (worker_.get_id() == std::this_thread::get_id()) {
    worker_.detach();
  } else {
    worker_.join();
  }
}

void Stream::Enqueue(std::function<Outcome()> work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(work));
    ++queued_;
  }
  changed_.notify_all();
}

Outcome Stream::Synchronize() {
  std::unique_lock<std::mutex> lock(mutex_);
  const std::uint64_t until = queued_;
  changed_.wait(lock, [&] { return finished_ >= until; });
  return std::exchange(first_failure_, Outcome());
}

void Stream::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<Outcome()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Outcome outcome;
    try {
      outcome = work();
    } catch (...) {
      outcome.code = ACL_ERROR_INTERNAL_ERROR;
      outcome.message = "work on a stream threw an exception";
    }
    work = nullptr;  // what it held is released outside the lock
    lock.lock();
    ++finished_;
    if (outcome.code != 0 && first_failure_.code == 0) first_failure_ = std::move(outcome);
    changed_.notify_all();
  }
}

namespace {

constexpr std::int32_t kDevices = 1;

// Default contexts by device, with the number of aclrtSetDevice calls that hold them.
struct Devices {
  std::mutex mutex;
  struct Default {
    void* context = nullptr;
    int holders = 0;
  };
  std::map<std::int32_t, Default> defaults;
};

Devices& AllDevices() {
  static Devices* const devices = new Devices;
  return *devices;
}

thread_local void* current_context = nullptr;

int CheckDevice(const char* call, std::int32_t device) {
  if (device >= 0 && device < kDevices) return ACL_SUCCESS;
  return Fail(ACL_ERROR_RT_INVALID_DEVICEID,
              std::string(call) + ": deviceId is " + std::to_string(device) + ", expected 0");
}

// Out of the registry, and all its streams with it; queued work is finished first.
void EndContext(void* handle) {
  const std::shared_ptr<DeviceContext> context = Remove<DeviceContext>(handle);
  if (!context) return;
  std::vector<void*> streams;
  std::shared_ptr<Stream> default_stream;
  {
    const std::lock_guard<std::mutex> lock(context->mutex);
    streams.swap(context->streams);
    default_stream.swap(context->default_stream);
  }
  for (void* stream : streams) Remove<Stream>(stream);
}

int NoContext(const char* call) {
  return Fail(
      ACL_ERROR_RT_CONTEXT_NULL,
      std::string(call) +
          ": this thread has no context, expected aclrtSetDevice or aclrtSetCurrentContext");
}

}  // namespace

std::shared_ptr<DeviceContext> CurrentContext() { return Find<DeviceContext>(current_context); }

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
  if (!context->default_stream) context->default_stream = std::make_shared<Stream>();
  return context->default_stream;
}

namespace {

int SetDevice(std::int32_t device) {
  constexpr char kCall[] = "aclrtSetDevice";
  if (const int code = CheckDevice(kCall, device); code != 0) return code;
  if (FindProfile() == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, UnknownProfile(kCall));
  Devices& devices = AllDevices();
  const std::lock_guard<std::mutex> lock(devices.mutex);
  Devices::Default& entry = devices.defaults[device];
  if (entry.holders == 0) entry.context = Handles().Add(std::make_shared<DeviceContext>());
  ++entry.holders;
  current_context = entry.context;
  return ACL_SUCCESS;
}

int ResetDevice(std::int32_t device) {
  constexpr char kCall[] = "aclrtResetDevice";
  if (const int code = CheckDevice(kCall, device); code != 0) return code;
  void* last = nullptr;
  {
    Devices& devices = AllDevices();
    const std::lock_guard<std::mutex> lock(devices.mutex);
    Devices::Default& entry = devices.defaults[device];
    if (entry.holders == 0) {
      return Fail(ACL_ERROR_RT_PARAM_INVALID,
                  std::string(kCall) + ": device 0 is not set, expected aclrtSetDevice before");
    }
    if (--entry.holders == 0) last = std::exchange(entry.context, nullptr);
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
    Devices& devices = AllDevices();
    const std::lock_guard<std::mutex> lock(devices.mutex);
    for (const auto& [device, entry] : devices.defaults) {
      if (entry.context == handle) {
        return Fail(ACL_ERROR_RT_PARAM_INVALID,
                    std::string(kCall) +
                        ": context is a device's default one, expected aclrtResetDevice for it");
      }
    }
  }
  EndContext(handle);
  return ACL_SUCCESS;
}

}  // namespace
}  // namespace anabranch::acl

using anabranch::acl::DeviceContext;
using anabranch::acl::Fail;
using anabranch::acl::Find;
using anabranch::acl::Guarded;
using anabranch::acl::Stream;

extern "C" {

aclError aclrtSetDevice(int32_t deviceId) {
  return Guarded("aclrtSetDevice", [&] { return anabranch::acl::SetDevice(deviceId); });
}

aclError aclrtResetDevice(int32_t deviceId) {
  return Guarded("aclrtResetDevice", [&] { return anabranch::acl::ResetDevice(deviceId); });
}

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  return Guarded("aclrtCreateContext", [&]() -> int {
    if (context == nullptr) {
      return Fail(ACL_ERROR_INVALID_PARAM,
                  "aclrtCreateContext: context is null, expected an address");
    }
    const int code = anabranch::acl::CheckDevice("aclrtCreateContext", deviceId);
    if (code != 0) return code;
    *context = anabranch::acl::Handles().Add(std::make_shared<DeviceContext>());
    anabranch::acl::current_context = *context;
    return ACL_SUCCESS;
  });
}

aclError aclrtDestroyContext(aclrtContext context) {
  return Guarded("aclrtDestroyContext", [&] { return anabranch::acl::DestroyContext(context); });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return Guarded("aclrtSetCurrentContext", [&]() -> int {
    if (!Find<DeviceContext>(context)) {
      return Fail(context == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_RT_INVALID_HANDLE,
                  "aclrtSetCurrentContext: context is null or no live context, expected a context");
    }
    anabranch::acl::current_context = context;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  return Guarded("aclrtGetCurrentContext", [&]() -> int {
    if (context == nullptr) {
      return Fail(ACL_ERROR_INVALID_PARAM,
                  "aclrtGetCurrentContext: context is null, expected an address");
    }
    if (!anabranch::acl::CurrentContext()) {
      return anabranch::acl::NoContext("aclrtGetCurrentContext");
    }
    *context = anabranch::acl::current_context;
    return ACL_SUCCESS;
  });
}

aclError aclrtCreateStream(aclrtStream* stream) {
  return Guarded("aclrtCreateStream", [&]() -> int {
    if (stream == nullptr) {
      return Fail(ACL_ERROR_INVALID_PARAM,
                  "aclrtCreateStream: stream is null, expected an address");
    }
    const std::shared_ptr<DeviceContext> context = anabranch::acl::CurrentContext();
    if (!context) return anabranch::acl::NoContext("aclrtCreateStream");
    void* handle = anabranch::acl::Handles().Add(std::make_shared<Stream>());
    const std::lock_guard<std::mutex> lock(context->mutex);
    context->streams.push_back(handle);
    *stream = handle;
    return ACL_SUCCESS;
  });
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return Guarded("aclrtDestroyStream", [&]() -> int {
    if (stream == nullptr) {
      return Fail(ACL_ERROR_INVALID_PARAM, "aclrtDestroyStream: stream is null, expected a stream");
    }
    const std::shared_ptr<Stream> owned = anabranch::acl::Remove<Stream>(stream);
    if (!owned) {
      return Fail(
          ACL_ERROR_RT_INVALID_HANDLE,
          "aclrtDestroyStream: stream is no live stream, expected one of aclrtCreateStream");
    }
    owned->Synchronize();
    return ACL_SUCCESS;
  });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return Guarded("aclrtSynchronizeStream", [&]() -> int {
    int code = 0;
    const std::shared_ptr<Stream> found =
        anabranch::acl::FindStream("aclrtSynchronizeStream", stream, &code);
    if (!found) return code;
    const anabranch::acl::Outcome outcome = found->Synchronize();
    return outcome.code == 0 ? ACL_SUCCESS : Fail(outcome.code, outcome.message);
  });
}

}  // extern "C"
