// Contexts and streams. A stream is a first-in first-out queue with a worker thread of its own.
#ifndef ANABRANCH_SRC_ACL_STREAM_H_
#define ANABRANCH_SRC_ACL_STREAM_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "acl/acl_rt.h"
#include "src/acl/object.h"

namespace anabranch::acl {

// What a queued piece of work comes to: 0 or a code with its message.
struct Outcome {
  int code = 0;
  std::string message;
};

struct Stream final : Object {
  static constexpr Kind kKind = Kind::kStream;
  Stream();
  ~Stream() override;  // finishes what is queued

  // Queues and returns at once.
  void Enqueue(std::function<Outcome()> work);

  // Waits for everything queued before the call; the first failure since the last call.
  Outcome Synchronize();

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<Outcome()>> queue_;
  std::uint64_t queued_ = 0;    // ever
  std::uint64_t finished_ = 0;  // ever
  Outcome first_failure_;
  bool stop_ = false;
  std::thread worker_;
};

struct DeviceContext final : Object {
  static constexpr Kind kKind = Kind::kContext;
  DeviceContext() : Object(kKind) {}

  std::mutex mutex;
  std::shared_ptr<Stream> default_stream;  // made on first use
  std::vector<void*> streams;              // handles of streams made in this context
};

// This thread's context if it is alive, or null.
std::shared_ptr<DeviceContext> CurrentContext();

// The stream of a handle; null means the default stream of this thread's context. On failure the
// pointer is null, the code is set and a message is left. `call` names the caller in the message.
std::shared_ptr<Stream> FindStream(const char* call, aclrtStream handle, int* code);

}  // namespace anabranch::acl

#endif  // ANABRANCH_SRC_ACL_STREAM_H_
