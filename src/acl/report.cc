// Callbacks that run in a thread of the program's own: a thread subscribes to streams, work of
// those streams hands callbacks over to it, and the thread runs them in aclrtProcessReport.
#include <pthread.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>

#include "src/acl/context.h"
#include "src/acl/holds.h"
#include "src/acl/message.h"
#include "src/acl/per_process.h"

namespace anabranch::acl {

// What a subscribed thread has to do; owned by the streams that it is subscribed to. Everything
// here and in the map below is used under AllSignals().mutex.
struct Reports {
  struct Callback {
    aclrtCallback function;
    void* argument;
    const Queue* queue;  // of the stream that launched it
    bool finished = false;
    bool dropped = false;
  };
  std::uint64_t thread = 0;
  std::list<std::shared_ptr<Callback>> waiting;
};

namespace {

using Callback = Reports::Callback;

using ThreadMap = std::map<std::uint64_t, std::weak_ptr<Reports>>;
constinit PerProcess<ThreadMap> threads;
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { threads.Abandon(); });

ThreadMap& Threads() { return threads.Get(); }

int Subscribe(std::uint64_t thread, aclrtStream handle) {
  constexpr char kCall[] = "aclrtSubscribeReport";
  int code = 0;
  const std::shared_ptr<Stream> stream = FindStream(kCall, handle, &code);
  if (!stream) return code;
  const std::lock_guard<std::mutex> lock(AllSignals().mutex);
  if (stream->reports) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID,
                std::string(kCall) + ": the stream has a thread already, expected one without");
  }
  std::weak_ptr<Reports>& place = Threads()[thread];
  std::shared_ptr<Reports> reports = place.lock();
  if (!reports) {
    reports = std::make_shared<Reports>();
    reports->thread = thread;
    place = reports;
  }
  stream->reports = std::move(reports);
  return ACL_SUCCESS;
}

// What the thread has not begun for this stream is dropped.
int Unsubscribe(std::uint64_t thread, aclrtStream handle) {
  constexpr char kCall[] = "aclrtUnSubscribeReport";
  int code = 0;
  const std::shared_ptr<Stream> stream = FindStream(kCall, handle, &code);
  if (!stream) return code;
  {
    const std::lock_guard<std::mutex> lock(AllSignals().mutex);
    if (!stream->reports || stream->reports->thread != thread) {
      return Fail(ACL_ERROR_RT_PARAM_INVALID,
                  std::string(kCall) +
                      ": that thread is not subscribed to the stream, expected one that is");
    }
    stream->reports->waiting.remove_if([&](const std::shared_ptr<Callback>& callback) {
      callback->dropped = callback->queue == stream->queue();
      return callback->dropped;
    });
    stream->reports = nullptr;
  }
  AllSignals().changed.notify_all();
  return ACL_SUCCESS;
}

// Work of the stream: hands the callback over and, if it blocks, waits for its end.
Outcome HandOver(const std::weak_ptr<Reports>& to, const std::shared_ptr<Callback>& callback,
                 bool block, const Queue& queue) {
  std::unique_lock<std::mutex> lock(AllSignals().mutex);
  const std::shared_ptr<Reports> reports = to.lock();
  if (!reports) {
    return {ACL_ERROR_RT_PARAM_INVALID,
            "aclrtLaunchCallback: the stream's thread is no longer subscribed"};
  }
  callback->queue = &queue;
  reports->waiting.push_back(callback);
  AllSignals().changed.notify_all();
  if (!block) return {};
  AllSignals().Wait(&lock, std::nullopt,
                    [&] { return callback->finished || callback->dropped || queue.ending(); });
  if (callback->finished) return {};
  return {ACL_ERROR_RT_PARAM_INVALID,
          "aclrtLaunchCallback: the stream ended before its thread ran the callback"};
}

int Launch(aclrtCallback function, void* argument, aclrtCallbackBlockType block,
           aclrtStream handle) {
  constexpr char kCall[] = "aclrtLaunchCallback";
  if (function == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(kCall) + ": fn is null, expected a function");
  }
  if (block != ACL_CALLBACK_NO_BLOCK && block != ACL_CALLBACK_BLOCK) {
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(kCall) + ": blockType is " +
                                             std::to_string(static_cast<int>(block)) +
                                             ", expected an aclrtCallbackBlockType");
  }
  int code = 0;
  const std::shared_ptr<Stream> stream = FindStream(kCall, handle, &code);
  if (!stream) return code;
  std::weak_ptr<Reports> reports;
  {
    const std::lock_guard<std::mutex> lock(AllSignals().mutex);
    if (!stream->reports) {
      return Fail(ACL_ERROR_RT_PARAM_INVALID,
                  std::string(kCall) +
                      ": no thread is subscribed to the stream, expected "
                      "aclrtSubscribeReport before");
    }
    reports = stream->reports;
  }
  auto callback = std::make_shared<Callback>();
  callback->function = function;
  callback->argument = argument;
  stream->Enqueue([reports, callback, block](const Queue& queue) {
    return HandOver(reports, callback, block == ACL_CALLBACK_BLOCK, queue);
  });
  return ACL_SUCCESS;
}

int Process(std::int32_t milliseconds) {
  constexpr char kCall[] = "aclrtProcessReport";
  if (milliseconds < -1) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(kCall) + ": timeout is " +
                                                std::to_string(milliseconds) +
                                                ", expected -1 (for ever) or milliseconds >= 0");
  }
  const Deadline deadline = DeadlineAfter(milliseconds);
  std::unique_lock<std::mutex> lock(AllSignals().mutex);
  const auto found = Threads().find(static_cast<std::uint64_t>(pthread_self()));
  const std::weak_ptr<Reports> mine =
      found == Threads().end() ? std::weak_ptr<Reports>() : found->second;
  std::shared_ptr<Callback> callback;
  const bool in_time = AllSignals().Wait(&lock, deadline, [&] {
    const std::shared_ptr<Reports> reports = mine.lock();
    if (!reports) return true;  // never subscribed, or no longer
    if (reports->waiting.empty()) return false;
    callback = std::move(reports->waiting.front());
    reports->waiting.pop_front();
    return true;
  });
  lock.unlock();
  if (!callback) {
    return in_time ? Fail(ACL_ERROR_RT_PARAM_INVALID,
                          std::string(kCall) +
                              ": this thread is subscribed to no stream, expected "
                              "aclrtSubscribeReport before")
                   : Fail(ACL_ERROR_RT_WAIT_TIMEOUT, std::string(kCall) + ": nothing to do after " +
                                                         std::to_string(milliseconds) + " ms");
  }
  const auto finish = [&] {
    lock.lock();
    callback->finished = true;
    lock.unlock();
    AllSignals().changed.notify_all();
  };
  try {
    const InsideStreamWork inside;
    callback->function(callback->argument);
  } catch (...) {  // the stream must not wait for it for ever
    finish();
    throw;
  }
  finish();
  return ACL_SUCCESS;
}

}  // namespace
}  // namespace anabranch::acl

namespace acl = anabranch::acl;

extern "C" {

aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return acl::Guarded("aclrtSubscribeReport", [&] { return acl::Subscribe(threadId, stream); });
}

aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return acl::Guarded("aclrtUnSubscribeReport", [&] { return acl::Unsubscribe(threadId, stream); });
}

aclError aclrtLaunchCallback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType,
                             aclrtStream stream) {
  return acl::Guarded("aclrtLaunchCallback",
                      [&] { return acl::Launch(fn, userData, blockType, stream); });
}

aclError aclrtProcessReport(int32_t timeout) {
  return acl::Guarded("aclrtProcessReport", [&] { return acl::Process(timeout); });
}

}  // extern "C"
