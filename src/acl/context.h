// Contexts: what a thread is bound to.
#ifndef ANABRANCH_SRC_ACL_CONTEXT_H_
#define ANABRANCH_SRC_ACL_CONTEXT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "acl/acl_rt.h"
#include "src/acl/object.h"
#include "src/acl/stream.h"

namespace anabranch::acl {

struct DeviceContext final : Object {
  static constexpr Kind kKind = Kind::kContext;
  DeviceContext() : Object(kKind) {}

  std::mutex mutex;
  std::shared_ptr<Stream> default_stream;  // made on first use
  std::map<int, std::int64_t> parameters;  // aclrtCtxSetSysParamOpt
};

// This thread's context if it is alive, or null.
std::shared_ptr<DeviceContext> CurrentContext();

// Leaves the message "this thread has no context" and returns 107002.
int NoContext(const char* call);

// The stream of a handle; null means the default stream of this thread's context. On failure the
// pointer is null, the code is set and a message is left. `call` names the caller in the message.
std::shared_ptr<Stream> FindStream(const char* call, aclrtStream handle, int* code);

// Waits for a stream. The work's first failure or a timeout (`timeout_code`) is left as a message;
// so is the refusal of work that would wait for its own stream.
int WaitFor(const char* call, Stream* stream, std::int32_t milliseconds, int timeout_code);

}  // namespace anabranch::acl

#endif  // ANABRANCH_SRC_ACL_CONTEXT_H_
