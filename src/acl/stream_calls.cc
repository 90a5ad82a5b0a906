// The calls on streams, and callbacks that run in them.
#include "src/acl/context.h"
#include "src/acl/message.h"

namespace anabranch::acl {
namespace {

int CreateStream(const char* call, aclrtStream* stream) {
  if (stream == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM,
                std::string(call) + ": stream is null, expected an address");
  }
  if (!CurrentContext()) return NoContext(call);
  aclrtContext owner = nullptr;
  if (const int code = aclrtGetCurrentContext(&owner); code != 0) return code;
  *stream = Handles().Add(std::make_shared<Stream>(owner));
  return ACL_SUCCESS;
}

int DestroyStream(const char* call, aclrtStream handle, bool force) {
  if (handle == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(call) + ": stream is null, expected a stream");
  }
  const std::shared_ptr<Stream> stream = Find<Stream>(handle);
  if (stream && stream->on_worker()) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                std::string(call) +
                    ": called by work of the stream itself, expected a call from elsewhere");
  }
  if (!stream || !Remove<Stream>(handle)) {
    return Fail(
        ACL_ERROR_RT_INVALID_HANDLE,
        std::string(call) + ": stream is no live stream, expected one of aclrtCreateStream");
  }
  Outcome outcome;
  if (force) {
    stream->End(true);
  } else {
    stream->Synchronize(std::nullopt, &outcome);
  }
  return ACL_SUCCESS;
}

int StreamQuery(aclrtStream handle, aclrtStreamStatus* status) {
  constexpr char kCall[] = "aclrtStreamQuery";
  if (status == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM,
                std::string(kCall) + ": status is null, expected an address");
  }
  int code = 0;
  const std::shared_ptr<Stream> stream = FindStream(kCall, handle, &code);
  if (!stream) return code;
  *status = stream->idle() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

int LaunchHostFunction(aclrtStream handle, aclrtHostFunc function, void* argument) {
  constexpr char kCall[] = "aclrtLaunchHostFunc";
  if (function == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(kCall) + ": fn is null, expected a function");
  }
  int code = 0;
  const std::shared_ptr<Stream> stream = FindStream(kCall, handle, &code);
  if (!stream) return code;
  stream->Enqueue([function, argument](const Queue&) {
    function(argument);
    return Outcome();
  });
  return ACL_SUCCESS;
}

int Synchronize(const char* call, aclrtStream handle, std::int32_t milliseconds) {
  if (milliseconds < -1) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(call) + ": timeout is " +
                                                std::to_string(milliseconds) +
                                                ", expected -1 (for ever) or milliseconds >= 0");
  }
  int code = 0;
  const std::shared_ptr<Stream> stream = FindStream(call, handle, &code);
  if (!stream) return code;
  return WaitFor(call, stream.get(), milliseconds, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
}

}  // namespace
}  // namespace anabranch::acl

namespace acl = anabranch::acl;

extern "C" {

aclError aclrtCreateStream(aclrtStream* stream) {
  return acl::Guarded("aclrtCreateStream",
                      [&] { return acl::CreateStream("aclrtCreateStream", stream); });
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag) {
  return acl::Guarded("aclrtCreateStreamWithConfig", [&]() -> int {
    constexpr uint32_t kFlags = ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC;
    if ((flag & ~kFlags) != 0) {
      return acl::Fail(ACL_ERROR_RT_PARAM_INVALID,
                       "aclrtCreateStreamWithConfig: flag is " + std::to_string(flag) +
                           ", expected a combination of ACL_STREAM_FAST_LAUNCH and "
                           "ACL_STREAM_FAST_SYNC");
    }
    static_cast<void>(priority);  // all streams are alike here
    return acl::CreateStream("aclrtCreateStreamWithConfig", stream);
  });
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return acl::Guarded("aclrtDestroyStream",
                      [&] { return acl::DestroyStream("aclrtDestroyStream", stream, false); });
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  return acl::Guarded("aclrtDestroyStreamForce",
                      [&] { return acl::DestroyStream("aclrtDestroyStreamForce", stream, true); });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return acl::Guarded("aclrtSynchronizeStream",
                      [&] { return acl::Synchronize("aclrtSynchronizeStream", stream, -1); });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  return acl::Guarded("aclrtSynchronizeStreamWithTimeout", [&] {
    return acl::Synchronize("aclrtSynchronizeStreamWithTimeout", stream, timeout);
  });
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  return acl::Guarded("aclrtStreamQuery", [&] { return acl::StreamQuery(stream, status); });
}

aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void* args) {
  return acl::Guarded("aclrtLaunchHostFunc",
                      [&] { return acl::LaunchHostFunction(stream, fn, args); });
}

}  // extern "C"
