// Streams: first-in first-out queues, each with a worker thread of its own.
#ifndef ANABRANCH_SRC_ACL_STREAM_H_
#define ANABRANCH_SRC_ACL_STREAM_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "acl/acl_rt.h"
#include "src/acl/object.h"

namespace anabranch::acl {

// What a queued piece of work comes to: 0 or a code with its message.
struct Outcome {
  int code = 0;
  std::string message;
};

// When a wait gives up; none: never.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;

// From the milliseconds of a C call: -1 waits for ever.
Deadline DeadlineAfter(std::int32_t milliseconds);

// Things that work on one stream waits for and that happen elsewhere (event records, callbacks in
// other threads): one lock and one signal for all of them, so that ending a stream can wake its
// worker whatever it waits for. Held for a few instructions at a time.
struct Signals {
  std::mutex mutex;
  std::condition_variable changed;
  // Waits until ready() or the deadline; `lock` holds the mutex. False: time is up.
  template <class Ready>
  bool Wait(std::unique_lock<std::mutex>* lock, const Deadline& deadline, const Ready& ready) {
    if (deadline) return changed.wait_until(*lock, *deadline, ready);
    changed.wait(*lock, ready);
    return true;
  }
};

Signals& AllSignals();

// The part of a stream that its worker shares, so that the worker outlives the handle by itself.
class Queue {
 public:
  // Work is told whether its stream is ending (see Stream::End), under the lock of AllSignals.
  using Work = std::function<Outcome(const Queue&)>;

  void Enqueue(Work work);
  bool WaitUntilDone(const Deadline& deadline, Outcome* outcome);
  bool idle();
  void End(bool discard);
  void Run();  // the worker
  // Nothing more will be waited for; read under the lock of AllSignals.
  bool ending() const { return ending_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Work> queue_;       // an empty one needs no memory, nor does taking from it
  std::uint64_t queued_ = 0;    // ever
  std::uint64_t finished_ = 0;  // ever
  Outcome first_failure_;
  bool stop_ = false;
  bool ending_ = false;
};

struct Reports;  // of a subscribed thread, see report.cc

struct Stream final : Object {
  static constexpr Kind kKind = Kind::kStream;
  // `owner` is the handle of its context.
  explicit Stream(const void* owner);
  ~Stream() override;  // End(false), and the worker is gone

  const void* const owner;
  std::shared_ptr<Reports> reports;  // under AllSignals().mutex

  // Queues and returns at once.
  void Enqueue(Queue::Work work) { queue_->Enqueue(std::move(work)); }

  // Waits for everything queued before the call and gives the first failure since the last call;
  // false: time is up.
  bool Synchronize(const Deadline& deadline, Outcome* outcome) {
    return queue_->WaitUntilDone(deadline, outcome);
  }

  // Nothing is queued or running.
  bool idle() { return queue_->idle(); }

  // The caller is work of this stream.
  bool on_worker() const { return worker_.get_id() == std::this_thread::get_id(); }

  // The worker finishes what is queued (or forgets what has not begun) and stops; it no longer
  // waits for events that nobody has recorded nor for callbacks that nobody has processed.
  void End(bool discard) { queue_->End(discard); }

  const Queue* queue() const { return queue_.get(); }

 private:
  std::shared_ptr<Queue> queue_;
  std::thread worker_;
};

}  // namespace anabranch::acl

#endif  // ANABRANCH_SRC_ACL_STREAM_H_
