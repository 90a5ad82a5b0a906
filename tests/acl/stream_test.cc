// Streams, events, callbacks: order, waits, ends. Nothing here depends on how long anything takes.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "tests/acl/fixture.h"

namespace anabranch::acl_test {
namespace {

// Work that holds its stream until it is opened.
class Gate {
 public:
  ~Gate() { Open(); }
  void Close(aclrtStream stream) { ASSERT_EQ(aclrtLaunchHostFunc(stream, &Wait, this), 0); }
  void Open() {
    if (!open_.exchange(true)) opened_.set_value();
  }

 private:
  static void Wait(void* gate) { static_cast<Gate*>(gate)->future_.wait(); }
  std::promise<void> opened_;
  std::shared_future<void> future_ = opened_.get_future().share();
  std::atomic<bool> open_{false};
};

class StreamTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    ASSERT_EQ(aclrtCreateStream(&a_), 0);
    ASSERT_EQ(aclrtCreateStreamWithConfig(&b_, 3, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC),
              0);
    ASSERT_EQ(aclrtCreateEvent(&event_), 0);
  }
  void TearDown() override {
    // Null where a test has destroyed it itself.
    EXPECT_EQ(event_ == nullptr ? 0 : aclrtDestroyEvent(event_), 0);
    EXPECT_EQ(a_ == nullptr ? 0 : aclrtDestroyStream(a_), 0);
    EXPECT_EQ(b_ == nullptr ? 0 : aclrtDestroyStream(b_), 0);
    EXPECT_EQ(aclrtResetDevice(0), 0);
    aclGetRecentErrMsg();
  }
  // Appends a number to a shared list when the stream gets there.
  void Note(aclrtStream stream, int number) {
    struct Entry {
      StreamTest* test;
      int number;
    };
    ASSERT_EQ(aclrtLaunchHostFunc(
                  stream,
                  [](void* p) {
                    const std::unique_ptr<Entry> entry(static_cast<Entry*>(p));
                    const std::lock_guard<std::mutex> lock(entry->test->mutex_);
                    entry->test->notes_.push_back(entry->number);
                  },
                  new Entry{this, number}),
              0);
  }
  std::vector<int> Notes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return notes_;
  }
  aclrtEventRecordedStatus EventStatus() {
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    EXPECT_EQ(aclrtQueryEventStatus(event_, &status), 0);
    return status;
  }
  aclrtStreamStatus StreamStatus(aclrtStream stream) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_COMPLETE;
    EXPECT_EQ(aclrtStreamQuery(stream, &status), 0);
    return status;
  }

  aclrtStream a_ = nullptr;
  aclrtStream b_ = nullptr;
  aclrtEvent event_ = nullptr;
  std::mutex mutex_;
  std::vector<int> notes_;
};

using Ints = std::vector<int>;

TEST_F(StreamTest, HostFunctionsRunInOrderAndHoldNobodyElse) {
  Gate gate;
  gate.Close(a_);
  for (int k = 0; k < 20; ++k) Note(a_, k);
  EXPECT_EQ(StreamStatus(a_), ACL_STREAM_STATUS_NOT_READY);
  ExpectFailure(aclrtSynchronizeStreamWithTimeout(a_, 0), 507046, {"not done after 0 ms"});
  ExpectFailure(aclrtSynchronizeStreamWithTimeout(a_, 5), 507046,
                {"aclrtSynchronizeStreamWithTimeout"});
  ExpectFailure(aclrtSynchronizeStreamWithTimeout(a_, -2), 107000, {"timeout is -2"});
  Note(b_, 100);
  EXPECT_EQ(aclrtSynchronizeStream(b_), 0);
  EXPECT_EQ(Notes(), Ints({100}));
  gate.Open();
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(a_, -1), 0);
  EXPECT_EQ(StreamStatus(a_), ACL_STREAM_STATUS_COMPLETE);
  ASSERT_EQ(Notes().size(), 21u);
  for (int k = 0; k < 20; ++k) EXPECT_EQ(Notes()[static_cast<std::size_t>(k) + 1], k);
}

TEST_F(StreamTest, CopiesAndFillsAreWorkOfTheStream) {
  Gate gate;
  unsigned char from[4] = {1, 2, 3, 4};
  unsigned char to[4] = {};
  gate.Close(a_);
  ASSERT_EQ(aclrtMemcpyAsync(to, 4, from, 4, ACL_MEMCPY_DEFAULT, a_), 0);
  ASSERT_EQ(aclrtMemsetAsync(to, 4, 0x1ff, 2, a_), 0);
  const unsigned char untouched[4] = {};
  EXPECT_EQ(std::memcmp(to, untouched, 4), 0);
  unsigned char copy[4] = {9, 9, 9, 9};  // a copy that is not of a stream waits for none
  ASSERT_EQ(aclrtMemcpy(copy, 4, to, 4, ACL_MEMCPY_DEVICE_TO_HOST), 0);
  EXPECT_EQ(std::memcmp(copy, untouched, 4), 0);
  gate.Open();
  ASSERT_EQ(aclrtSynchronizeStream(a_), 0);
  const unsigned char wanted[4] = {0xff, 0xff, 3, 4};
  EXPECT_EQ(std::memcmp(to, wanted, 4), 0);
  ExpectFailure(aclrtMemcpyAsync(to, 2, from, 4, ACL_MEMCPY_DEFAULT, a_), 107000, {"destMax = 2"});
  ExpectFailure(aclrtMemcpyAsync(to, 4, nullptr, 4, ACL_MEMCPY_DEFAULT, a_), 100000, {"src"});
  ExpectFailure(aclrtMemcpyAsync(to, 4, from, 4, ACL_MEMCPY_DEFAULT, event_), 107017, {"stream"});
  ExpectFailure(aclrtMemsetAsync(to, 1, 0, 2, a_), 107000, {"maxCount = 1"});
  ExpectFailure(aclrtMemsetAsync(nullptr, 1, 0, 1, a_), 100000, {"devPtr"});
}

TEST_F(StreamTest, EventsOrderStreams) {
  Gate gate;
  EXPECT_EQ(EventStatus(), ACL_EVENT_RECORDED_STATUS_NOT_READY);
  EXPECT_EQ(aclrtSynchronizeEvent(event_), 0);  // nothing to wait for
  gate.Close(a_);
  Note(a_, 1);
  ASSERT_EQ(aclrtRecordEvent(event_, a_), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(b_, event_), 0);
  Note(b_, 2);
  EXPECT_EQ(EventStatus(), ACL_EVENT_RECORDED_STATUS_NOT_READY);
  aclrtEventStatus status = ACL_EVENT_STATUS_COMPLETE;
  EXPECT_EQ(aclrtQueryEvent(event_, &status), 0);
  EXPECT_EQ(status, ACL_EVENT_STATUS_NOT_READY);
  ExpectFailure(aclrtSynchronizeEventWithTimeout(event_, 2), 507047, {"after 2 ms"});
  EXPECT_EQ(StreamStatus(b_), ACL_STREAM_STATUS_NOT_READY);
  gate.Open();
  EXPECT_EQ(aclrtSynchronizeEvent(event_), 0);
  EXPECT_EQ(aclrtSynchronizeStream(b_), 0);
  EXPECT_EQ(Notes(), Ints({1, 2}));
  EXPECT_EQ(EventStatus(), ACL_EVENT_RECORDED_STATUS_COMPLETE);
}

TEST_F(StreamTest, AWaitBeforeTheRecordWaitsForTheNextOne) {
  ASSERT_EQ(aclrtStreamWaitEvent(b_, event_), 0);
  Note(b_, 2);
  Note(a_, 1);
  ASSERT_EQ(aclrtSynchronizeStream(a_), 0);
  EXPECT_EQ(StreamStatus(b_), ACL_STREAM_STATUS_NOT_READY);
  ASSERT_EQ(aclrtRecordEvent(event_, a_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(b_), 0);
  EXPECT_EQ(Notes(), Ints({1, 2}));
}

TEST_F(StreamTest, ResetMakesAnEventNewAndLeavesEarlierWaitsAlone) {
  Gate gate;
  gate.Close(a_);
  ASSERT_EQ(aclrtRecordEvent(event_, a_), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(b_, event_), 0);
  ASSERT_EQ(aclrtResetEvent(event_, b_), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(b_, event_), 0);  // for the record below
  Note(b_, 7);
  gate.Open();
  ASSERT_EQ(aclrtSynchronizeStream(a_), 0);
  EXPECT_EQ(StreamStatus(b_), ACL_STREAM_STATUS_NOT_READY);
  EXPECT_TRUE(Notes().empty());
  ASSERT_EQ(aclrtRecordEvent(event_, a_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(b_), 0);
  EXPECT_EQ(Notes(), Ints({7}));
  EXPECT_EQ(EventStatus(), ACL_EVENT_RECORDED_STATUS_COMPLETE);
  ASSERT_EQ(aclrtResetEvent(event_, a_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(a_), 0);
  EXPECT_EQ(EventStatus(), ACL_EVENT_RECORDED_STATUS_NOT_READY);
}

TEST_F(StreamTest, ElapsedTimeNeedsTwoCompletedTimedRecords) {
  float ms = -1;
  aclrtEvent end = nullptr;
  aclrtEvent untimed = nullptr;
  ASSERT_EQ(aclrtCreateEventWithFlag(&end, ACL_EVENT_TIME_LINE), 0);
  ASSERT_EQ(aclrtCreateEventExWithFlag(&untimed, ACL_EVENT_SYNC), 0);
  ExpectFailure(aclrtEventElapsedTime(&ms, event_, end), 107006, {"start", "no completed record"});
  ASSERT_EQ(aclrtRecordEvent(event_, a_), 0);
  ASSERT_EQ(aclrtRecordEvent(end, a_), 0);
  ASSERT_EQ(aclrtRecordEvent(untimed, a_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(a_), 0);
  ASSERT_EQ(aclrtEventElapsedTime(&ms, event_, end), 0);
  EXPECT_GE(ms, 0.0f);
  ASSERT_EQ(aclrtEventElapsedTime(&ms, end, event_), 0);
  EXPECT_LE(ms, 0.0f);
  ExpectFailure(aclrtEventElapsedTime(&ms, event_, untimed), 107006, {"end", "keeps no times"});
  ExpectFailure(aclrtEventElapsedTime(nullptr, event_, end), 100000, {"ms"});
  EXPECT_EQ(aclrtDestroyEvent(end), 0);
  EXPECT_EQ(aclrtDestroyEvent(untimed), 0);
}

TEST_F(StreamTest, WrongEventsAreFoundOut) {
  aclrtEventRecordedStatus status;
  ExpectFailure(aclrtCreateEvent(nullptr), 100000, {"null"});
  aclrtEvent made = nullptr;
  ExpectFailure(aclrtCreateEventWithFlag(&made, 64), 107000, {"flag is 64"});
  ExpectFailure(aclrtRecordEvent(nullptr, a_), 100000, {"event is null"});
  ExpectFailure(aclrtRecordEvent(a_, a_), 107017, {"no live event"});
  ExpectFailure(aclrtRecordEvent(event_, event_), 107017, {"no live stream"});
  ExpectFailure(aclrtStreamWaitEvent(a_, b_), 107017, {"no live event"});
  ExpectFailure(aclrtQueryEventStatus(event_, nullptr), 100000, {"status"});
  ExpectFailure(aclrtResetEvent(a_, a_), 107017, {"no live event"});
  ASSERT_EQ(aclrtDestroyEvent(event_), 0);
  ExpectFailure(aclrtDestroyEvent(event_), 107017, {"no live event"});
  ExpectFailure(aclrtQueryEventStatus(event_, &status), 107017, {"no live event"});
  ExpectFailure(aclrtSynchronizeEvent(event_), 107017, {"no live event"});
  event_ = nullptr;
}

TEST_F(StreamTest, ADestroyedEventLetsItsWaitersGo) {
  ASSERT_EQ(aclrtStreamWaitEvent(b_, event_), 0);
  Note(b_, 1);
  ASSERT_EQ(aclrtDestroyEvent(event_), 0);
  event_ = nullptr;
  ExpectFailure(aclrtSynchronizeStream(b_), 107017, {"aclrtStreamWaitEvent"});
  EXPECT_EQ(Notes(), Ints({1}));
}

TEST_F(StreamTest, AnEventMayGoWhileItsRecordIsQueued) {
  Gate gate;
  gate.Close(a_);
  ASSERT_EQ(aclrtRecordEvent(event_, a_), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(b_, event_), 0);
  ASSERT_EQ(aclrtDestroyEvent(event_), 0);
  event_ = nullptr;
  gate.Open();
  EXPECT_EQ(aclrtSynchronizeStream(b_), 0);
}

TEST_F(StreamTest, ForcedDestructionForgetsWhatHasNotBegun) {
  Gate gate;
  gate.Close(a_);
  int runs = 0;
  ASSERT_EQ(aclrtLaunchHostFunc(
                a_, [](void* p) { ++*static_cast<int*>(p); }, &runs),
            0);
  ASSERT_EQ(aclrtRecordEvent(event_, a_), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(b_, event_), 0);
  std::thread opener([&] {
    // The forgotten record lets the other stream go even before the running work ends.
    EXPECT_EQ(aclrtSynchronizeStream(b_), 0);
    gate.Open();
  });
  EXPECT_EQ(aclrtDestroyStreamForce(a_), 0);
  opener.join();
  EXPECT_EQ(runs, 0);
  ExpectFailure(aclrtDestroyStreamForce(a_), 107017, {"no live stream"});
  a_ = nullptr;
}

TEST_F(StreamTest, ForcedDestructionEndsAWaitForNothing) {
  ASSERT_EQ(aclrtStreamWaitEvent(a_, event_), 0);
  EXPECT_EQ(aclrtDestroyStreamForce(a_), 0);
  a_ = nullptr;
}

TEST_F(StreamTest, WorkMayNotWaitForItsOwnStream) {
  struct State {
    aclrtStream stream;
    int codes[3];
  } state = {a_, {-1, -1, -1}};
  const auto work = [](void* p) {
    auto* s = static_cast<State*>(p);
    s->codes[0] = aclrtSynchronizeStream(s->stream);
    s->codes[1] = aclrtDestroyStream(s->stream);
    s->codes[2] = aclrtDestroyStreamForce(s->stream);
  };
  ASSERT_EQ(aclrtLaunchHostFunc(a_, work, &state), 0);
  ASSERT_EQ(aclrtSynchronizeStream(a_), 0);
  for (int code : state.codes) EXPECT_EQ(code, 107000);
}

TEST_F(StreamTest, WorkMayEndItsOwnContext) {
  std::thread([] {
    const auto reset = std::make_shared<std::promise<int>>();
    aclrtContext context = nullptr;
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateContext(&context, 0), 0);
    ASSERT_EQ(aclrtCreateStream(&stream), 0);
    struct State {
      aclrtContext context;
      std::shared_ptr<std::promise<int>> reset;
    };
    const auto work = [](void* p) {
      const std::unique_ptr<State> state(static_cast<State*>(p));
      state->reset->set_value(aclrtDestroyContext(state->context));
    };
    ASSERT_EQ(aclrtLaunchHostFunc(stream, work, new State{context, reset}), 0);
    EXPECT_EQ(reset->get_future().get(), 0);
    ExpectFailure(aclrtSynchronizeStream(stream), 107017, {"no live stream"});
  }).join();
}

TEST_F(StreamTest, DeviceSynchronisationCoversEveryStream) {
  Note(a_, 1);
  Note(b_, 1);
  Note(nullptr, 1);
  EXPECT_EQ(aclrtSynchronizeDevice(), 0);
  EXPECT_EQ(Notes().size(), 3u);
  std::thread([] {
    std::int32_t device = -1;
    ExpectFailure(aclrtSynchronizeDevice(), 107002, {"no context"});
    ExpectFailure(aclrtGetDevice(&device), 107002, {"no context"});
  }).join();
  std::int32_t device = -1;
  EXPECT_EQ(aclrtGetDevice(&device), 0);
  EXPECT_EQ(device, 0);
  ExpectFailure(aclrtGetDevice(nullptr), 100000, {"deviceId"});
}

TEST_F(StreamTest, EndingAContextEndsWaitsForNothing) {
  std::thread([this] {
    aclrtContext context = nullptr;
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateContext(&context, 0), 0);
    ASSERT_EQ(aclrtCreateStream(&stream), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(stream, event_), 0);
    EXPECT_EQ(aclrtDestroyContext(context), 0);
  }).join();
}

TEST_F(StreamTest, CallbacksRunInTheSubscribedThread) {
  std::promise<std::uint64_t> id;
  std::atomic<bool> leave{false};
  std::thread thread([&] {
    id.set_value(static_cast<std::uint64_t>(pthread_self()));
    while (!leave) aclrtProcessReport(5);
  });
  const std::uint64_t thread_id = id.get_future().get();
  struct State {
    std::atomic<int> runs{0};
    std::atomic<std::uint64_t> thread{0};
  } state;
  const auto callback = [](void* p) {
    auto* s = static_cast<State*>(p);
    s->thread = static_cast<std::uint64_t>(pthread_self());
    ++s->runs;
  };
  ExpectFailure(aclrtLaunchCallback(callback, &state, ACL_CALLBACK_BLOCK, a_), 107000,
                {"no thread is subscribed"});
  ASSERT_EQ(aclrtSubscribeReport(thread_id, a_), 0);
  ASSERT_EQ(aclrtSubscribeReport(thread_id, b_), 0);
  ExpectFailure(aclrtSubscribeReport(thread_id, a_), 107000, {"has a thread already"});
  ASSERT_EQ(aclrtLaunchCallback(callback, &state, ACL_CALLBACK_BLOCK, a_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(a_), 0);  // a blocking one has run by then
  EXPECT_EQ(state.runs, 1);
  EXPECT_EQ(state.thread, thread_id);
  ASSERT_EQ(aclrtLaunchCallback(callback, &state, ACL_CALLBACK_NO_BLOCK, b_), 0);
  ASSERT_EQ(aclrtSynchronizeStream(b_), 0);
  while (state.runs < 2) std::this_thread::yield();
  ExpectFailure(aclrtLaunchCallback(nullptr, &state, ACL_CALLBACK_BLOCK, a_), 100000, {"fn"});
  ExpectFailure(aclrtUnSubscribeReport(thread_id + 1, a_), 107000, {"not subscribed"});
  EXPECT_EQ(aclrtUnSubscribeReport(thread_id, a_), 0);
  EXPECT_EQ(aclrtUnSubscribeReport(thread_id, b_), 0);
  leave = true;
  thread.join();
  ExpectFailure(aclrtProcessReport(0), 107000, {"subscribed to no stream"});
}

TEST_F(StreamTest, UnprocessedCallbacksLetTheStreamGo) {
  const auto me = static_cast<std::uint64_t>(pthread_self());
  ASSERT_EQ(aclrtSubscribeReport(me, a_), 0);
  ExpectFailure(aclrtProcessReport(1), 107019, {"after 1 ms"});
  const auto callback = [](void* p) { ++*static_cast<int*>(p); };
  int runs = 0;
  ASSERT_EQ(aclrtLaunchCallback(callback, &runs, ACL_CALLBACK_BLOCK, a_), 0);
  EXPECT_EQ(aclrtProcessReport(-1), 0);
  EXPECT_EQ(runs, 1);
  ASSERT_EQ(aclrtLaunchCallback(callback, &runs, ACL_CALLBACK_BLOCK, a_), 0);
  EXPECT_EQ(aclrtUnSubscribeReport(me, a_), 0);
  ExpectFailure(aclrtSynchronizeStream(a_), 107000, {"aclrtLaunchCallback"});
  EXPECT_EQ(runs, 1);
}

TEST_F(StreamTest, WrongStreams) {
  aclrtStream made = nullptr;
  aclrtStreamStatus status;
  ExpectFailure(aclrtCreateStreamWithConfig(&made, 0, 4), 107000, {"flag is 4"});
  ExpectFailure(aclrtCreateStreamWithConfig(nullptr, 0, 0), 100000, {"null"});
  ExpectFailure(aclrtStreamQuery(a_, nullptr), 100000, {"status"});
  ExpectFailure(aclrtStreamQuery(event_, &status), 107017, {"no live stream"});
  ExpectFailure(aclrtLaunchHostFunc(a_, nullptr, nullptr), 100000, {"fn"});
  ExpectFailure(aclrtLaunchHostFunc(
                    event_, [](void*) {}, nullptr),
                107017, {"no live stream"});
}

}  // namespace
}  // namespace anabranch::acl_test
