#include "src/acl/stream.h"

#include <pthread.h>

#include <utility>

#include "src/acl/holds.h"
#include "src/acl/per_process.h"

namespace anabranch::acl {

Deadline DeadlineAfter(std::int32_t milliseconds) {
  if (milliseconds < 0) return std::nullopt;
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
}

namespace {
constinit PerProcess<Signals> signals;
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { signals.Abandon(); });
}  // namespace

Signals& AllSignals() { return signals.Get(); }

void Queue::Enqueue(Work work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(work));
    ++queued_;
  }
  changed_.notify_all();
}

bool Queue::WaitUntilDone(const Deadline& deadline, Outcome* outcome) {
  std::unique_lock<std::mutex> lock(mutex_);
  const std::uint64_t until = queued_;
  const auto done = [&] { return finished_ >= until; };
  if (!deadline) {
    changed_.wait(lock, done);
  } else if (!changed_.wait_until(lock, *deadline, done)) {
    return false;
  }
  *outcome = std::exchange(first_failure_, Outcome());
  return true;
}

bool Queue::idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return finished_ == queued_;
}

void Queue::End(bool discard) {
  std::list<Work> forgotten;  // destroyed outside the lock
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    if (discard) {
      finished_ += queue_.size();
      forgotten.swap(queue_);
    }
  }
  changed_.notify_all();
  {
    const std::lock_guard<std::mutex> lock(AllSignals().mutex);
    ending_ = true;
  }
  AllSignals().changed.notify_all();
}

void Queue::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Outcome outcome;
    try {
      const InsideStreamWork inside;
      outcome = work(*this);
    } catch (const std::bad_alloc&) {
      outcome.code = ACL_ERROR_BAD_ALLOC;
    } catch (...) {
      outcome.code = ACL_ERROR_INTERNAL_ERROR;
    }
    work = nullptr;  // what it held is released outside the lock
    lock.lock();
    ++finished_;
    if (outcome.code != 0 && first_failure_.code == 0) first_failure_ = std::move(outcome);
    changed_.notify_all();
  }
}

Stream::Stream(const void* context)
    : Object(kKind),
      owner(context),
      queue_(std::make_shared<Queue>()),
      worker_([queue = queue_] { queue->Run(); }) {}

Stream::~Stream() {
  queue_->End(false);
  // The last owner may be work that runs on this very stream: the worker then ends by itself.
  if (on_worker()) {
    worker_.detach();
  } else {
    worker_.join();
  }
}

}  // namespace anabranch::acl
