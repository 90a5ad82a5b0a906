// The calls on events.
#include "src/acl/event.h"

#include <algorithm>
#include <memory>

#include "src/acl/context.h"
#include "src/acl/message.h"
#include "src/acl/stream.h"

namespace anabranch::acl {
namespace {

std::shared_ptr<Event> FindEvent(const char* call, aclrtEvent handle, int* code) {
  std::shared_ptr<Event> event = Find<Event>(handle);
  if (event) return event;
  *code =
      handle == nullptr
          ? Fail(ACL_ERROR_INVALID_PARAM, std::string(call) + ": event is null, expected one")
          : Fail(ACL_ERROR_RT_INVALID_HANDLE,
                 std::string(call) + ": event is no live event, expected one of aclrtCreateEvent");
  return nullptr;
}

// A queued record. It completes when its stream reaches it, and also when the stream forgets it
// (aclrtDestroyStreamForce): nobody waits for ever for work that will not come.
class Record {
 public:
  // Counts as recorded from here on.
  explicit Record(std::shared_ptr<Event> event) : event_(std::move(event)) {
    const std::lock_guard<std::mutex> lock(AllSignals().mutex);
    number_ = ++event_->recorded;
  }
  ~Record() {
    if (!done_) Complete(false);
  }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  void Complete(bool reached) {
    done_ = true;
    {
      const std::lock_guard<std::mutex> lock(AllSignals().mutex);
      if (number_ > event_->completed) {
        event_->completed = number_;
        event_->has_time = reached && event_->timed;
        event_->time = std::chrono::steady_clock::now();
      }
    }
    AllSignals().changed.notify_all();
  }

 private:
  std::shared_ptr<Event> event_;
  std::uint64_t number_ = 0;
  bool done_ = false;
};

int CreateEvent(const char* call, aclrtEvent* event, std::uint32_t flag) {
  constexpr std::uint32_t kFlags =
      ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE;
  if (event == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM,
                std::string(call) + ": event is null, expected an address");
  }
  if ((flag & ~kFlags) != 0) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(call) + ": flag is " +
                                                std::to_string(flag) +
                                                ", expected a combination of ACL_EVENT_* flags");
  }
  *event = Handles().Add(std::make_shared<Event>((flag & ACL_EVENT_TIME_LINE) != 0));
  return ACL_SUCCESS;
}

int DestroyEvent(aclrtEvent handle) {
  int code = 0;
  const std::shared_ptr<Event> event = FindEvent("aclrtDestroyEvent", handle, &code);
  if (!event) return code;
  Remove<Event>(handle);
  {
    const std::lock_guard<std::mutex> lock(AllSignals().mutex);
    event->destroyed = true;
  }
  AllSignals().changed.notify_all();
  return ACL_SUCCESS;
}

int RecordEvent(aclrtEvent handle, aclrtStream stream_handle) {
  constexpr char kCall[] = "aclrtRecordEvent";
  int code = 0;
  const std::shared_ptr<Event> event = FindEvent(kCall, handle, &code);
  if (!event) return code;
  const std::shared_ptr<Stream> stream = FindStream(kCall, stream_handle, &code);
  if (!stream) return code;
  auto record = std::make_shared<Record>(event);
  AllSignals().changed.notify_all();  // a stream that is ending need not give up on it
  stream->Enqueue([record](const Queue&) {
    record->Complete(true);
    return Outcome();
  });
  return ACL_SUCCESS;
}

int ResetEvent(aclrtEvent handle, aclrtStream stream_handle) {
  constexpr char kCall[] = "aclrtResetEvent";
  int code = 0;
  const std::shared_ptr<Event> event = FindEvent(kCall, handle, &code);
  if (!event) return code;
  const std::shared_ptr<Stream> stream = FindStream(kCall, stream_handle, &code);
  if (!stream) return code;
  std::uint64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(AllSignals().mutex);
    number = event->recorded;
  }
  stream->Enqueue([event, number](const Queue&) {
    const std::lock_guard<std::mutex> lock(AllSignals().mutex);
    event->reset_done = std::max(event->reset_done, number);
    return Outcome();
  });
  const std::lock_guard<std::mutex> lock(AllSignals().mutex);
  event->reset = std::max(event->reset, number);
  return ACL_SUCCESS;
}

int StreamWaitEvent(aclrtStream stream_handle, aclrtEvent handle) {
  constexpr char kCall[] = "aclrtStreamWaitEvent";
  int code = 0;
  const std::shared_ptr<Event> event = FindEvent(kCall, handle, &code);
  if (!event) return code;
  const std::shared_ptr<Stream> stream = FindStream(kCall, stream_handle, &code);
  if (!stream) return code;
  std::uint64_t wanted = 0;
  {
    const std::lock_guard<std::mutex> lock(AllSignals().mutex);
    // Not recorded, or taken back since: the next record.
    wanted = event->recorded + (event->recorded == event->reset ? 1 : 0);
  }
  stream->Enqueue([event, wanted](const Queue& queue) {
    std::unique_lock<std::mutex> lock(AllSignals().mutex);
    AllSignals().Wait(&lock, std::nullopt, [&] {
      return event->completed >= wanted ||
             (event->recorded < wanted && (event->destroyed || queue.ending()));
    });
    if (event->completed >= wanted) return Outcome();
    return Outcome{ACL_ERROR_RT_INVALID_HANDLE,
                   "aclrtStreamWaitEvent: the event or the stream was destroyed before the event "
                   "was recorded, expected aclrtRecordEvent before"};
  });
  return ACL_SUCCESS;
}

int SynchronizeEvent(const char* call, aclrtEvent handle, std::int32_t milliseconds) {
  int code = 0;
  const std::shared_ptr<Event> event = FindEvent(call, handle, &code);
  if (!event) return code;
  if (milliseconds < -1) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(call) + ": timeout is " +
                                                std::to_string(milliseconds) +
                                                ", expected -1 (for ever) or milliseconds >= 0");
  }
  const Deadline deadline = DeadlineAfter(milliseconds);
  std::unique_lock<std::mutex> lock(AllSignals().mutex);
  const std::uint64_t wanted = event->recorded;
  const bool done = AllSignals().Wait(&lock, deadline, [&] { return event->completed >= wanted; });
  lock.unlock();
  return done ? ACL_SUCCESS
              : Fail(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, std::string(call) +
                                                          ": the event was not reached after " +
                                                          std::to_string(milliseconds) + " ms");
}

// Recorded, reached, and not taken back; the lock of AllSignals is held.
bool IsComplete(const Event& event) {
  return event.recorded > event.reset_done && event.completed >= event.recorded;
}

int QueryEvent(const char* call, aclrtEvent handle, const void* status, bool* complete) {
  int code = 0;
  const std::shared_ptr<Event> event = FindEvent(call, handle, &code);
  if (!event) return code;
  if (status == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM,
                std::string(call) + ": status is null, expected an address");
  }
  const std::lock_guard<std::mutex> lock(AllSignals().mutex);
  *complete = IsComplete(*event);
  return ACL_SUCCESS;
}

int ElapsedTime(float* ms, aclrtEvent start_handle, aclrtEvent end_handle) {
  constexpr char kCall[] = "aclrtEventElapsedTime";
  if (ms == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(kCall) + ": ms is null, expected an address");
  }
  int code = 0;
  const std::shared_ptr<Event> start = FindEvent(kCall, start_handle, &code);
  if (!start) return code;
  const std::shared_ptr<Event> end = FindEvent(kCall, end_handle, &code);
  if (!end) return code;
  std::unique_lock<std::mutex> lock(AllSignals().mutex);
  for (const Event* event : {start.get(), end.get()}) {
    if (IsComplete(*event) && event->has_time) continue;
    const bool timed = event->timed;
    lock.unlock();
    return Fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
                std::string(kCall) + ": " + (event == start.get() ? "start" : "end") +
                    (timed ? " has no completed record, expected a recorded event"
                           : " keeps no times, expected an event with ACL_EVENT_TIME_LINE"));
  }
  *ms = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return ACL_SUCCESS;
}

}  // namespace
}  // namespace anabranch::acl

namespace acl = anabranch::acl;

extern "C" {

aclError aclrtCreateEvent(aclrtEvent* event) {
  return acl::Guarded("aclrtCreateEvent", [&] {
    return acl::CreateEvent("aclrtCreateEvent", event, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE);
  });
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  return acl::Guarded("aclrtCreateEventWithFlag",
                      [&] { return acl::CreateEvent("aclrtCreateEventWithFlag", event, flag); });
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  return acl::Guarded("aclrtCreateEventExWithFlag",
                      [&] { return acl::CreateEvent("aclrtCreateEventExWithFlag", event, flag); });
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  return acl::Guarded("aclrtDestroyEvent", [&] { return acl::DestroyEvent(event); });
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return acl::Guarded("aclrtRecordEvent", [&] { return acl::RecordEvent(event, stream); });
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
  return acl::Guarded("aclrtResetEvent", [&] { return acl::ResetEvent(event, stream); });
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  return acl::Guarded("aclrtStreamWaitEvent", [&] { return acl::StreamWaitEvent(stream, event); });
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return acl::Guarded("aclrtSynchronizeEvent",
                      [&] { return acl::SynchronizeEvent("aclrtSynchronizeEvent", event, -1); });
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
  return acl::Guarded("aclrtSynchronizeEventWithTimeout", [&] {
    return acl::SynchronizeEvent("aclrtSynchronizeEventWithTimeout", event, timeout);
  });
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  return acl::Guarded("aclrtQueryEventStatus", [&] {
    bool complete = false;
    const int code = acl::QueryEvent("aclrtQueryEventStatus", event, status, &complete);
    if (code != 0) return code;
    *status = complete ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return ACL_SUCCESS;
  });
}

aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status) {
  return acl::Guarded("aclrtQueryEvent", [&] {
    bool complete = false;
    const int code = acl::QueryEvent("aclrtQueryEvent", event, status, &complete);
    if (code != 0) return code;
    *status = complete ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
    return ACL_SUCCESS;
  });
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent) {
  return acl::Guarded("aclrtEventElapsedTime",
                      [&] { return acl::ElapsedTime(ms, startEvent, endEvent); });
}

}  // extern "C"
