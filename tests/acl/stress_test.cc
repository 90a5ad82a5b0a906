// Many threads, streams and events at once: no operator is lost, and none runs out of order. Every
// queued operator is an affine map x -> a x + b with a = +-1/2, so that the value that comes out
// tells the order; all sums are rounded once, so that a plain loop gives the same bits.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "aclnnop/aclnn_mhc_post.h"
#include "tests/acl/fixture.h"

namespace anabranch::acl_test {
namespace {

constexpr int kOperators = 100000;
constexpr int kThreads = 8;
constexpr int kMaps = 4;
constexpr float kFactor[kMaps] = {0.5f, -0.5f, 0.5f, -0.5f};
constexpr float kAdded[kMaps] = {1.0f, 2.0f, 3.0f, -5.0f};

// x -> a x + b in place, as a repeatable executor.
class Map {
 public:
  Map(HostTensor<float>* x, float a, float b)
      : h_res_({1, 1, 1}, ACL_FLOAT, a),
        h_out_({1, 1}, ACL_FLOAT, b),
        h_post_({1, 1}, ACL_FLOAT, 1) {
    std::uint64_t size = 0;
    EXPECT_EQ(aclnnMhcPostGetWorkspaceSize(x->tensor, h_res_.tensor, h_out_.tensor, h_post_.tensor,
                                           x->tensor, &size, &executor_),
              0)
        << aclGetRecentErrMsg();
    EXPECT_EQ(size, 0u);
    EXPECT_EQ(aclSetAclOpExecutorRepeatable(executor_), 0);
  }
  ~Map() { aclDestroyAclOpExecutor(executor_); }
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;

  aclnnStatus Enqueue(aclrtStream stream) { return aclnnMhcPost(nullptr, 0, executor_, stream); }

 private:
  HostTensor<float> h_res_, h_out_, h_post_;
  aclOpExecutor* executor_ = nullptr;
};

using Maps = std::vector<std::unique_ptr<Map>>;

Maps MakeMaps(HostTensor<float>* x) {
  Maps maps;
  for (int k = 0; k < kMaps; ++k) maps.push_back(std::make_unique<Map>(x, kFactor[k], kAdded[k]));
  return maps;
}

// A small generator, so that every thread has its own order.
int Next(std::uint64_t* state, int bound) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<int>((*state >> 33) % static_cast<std::uint64_t>(bound));
}

class StressTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(aclrtSetDevice(0), 0); }
  void TearDown() override {
    EXPECT_EQ(aclrtResetDevice(0), 0);
    aclGetRecentErrMsg();
  }
};

// One value, worked on by two streams in turn; events carry the order over.
void WorkOnTwoStreams(int thread, int count) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  HostTensor<float> x({1, 1, 1}, ACL_FLOAT, 1.0f);
  {
    Maps maps = MakeMaps(&x);
    aclrtStream streams[2] = {};
    aclrtEvent events[2] = {};
    for (int s = 0; s < 2; ++s) {
      ASSERT_EQ(aclrtCreateStream(&streams[s]), 0);
      ASSERT_EQ(aclrtCreateEvent(&events[s]), 0);
    }
    std::uint64_t state = static_cast<std::uint64_t>(thread) + 1;
    float want = 1.0f;
    int now = 0;
    for (int k = 0; k < count; ++k) {
      const int which = Next(&state, kMaps);
      ASSERT_EQ(maps[static_cast<std::size_t>(which)]->Enqueue(streams[now]), 0);
      want = kFactor[which] * want + kAdded[which];
      if (Next(&state, 24) != 0) continue;
      ASSERT_EQ(aclrtRecordEvent(events[now], streams[now]), 0);
      ASSERT_EQ(aclrtStreamWaitEvent(streams[1 - now], events[now]), 0);
      now = 1 - now;
    }
    ASSERT_EQ(aclrtSynchronizeStream(streams[now]), 0) << aclGetRecentErrMsg();
    EXPECT_EQ(x.data[0], want) << "thread " << thread;
    for (int s = 0; s < 2; ++s) {
      EXPECT_EQ(aclrtDestroyStream(streams[s]), 0);
      EXPECT_EQ(aclrtDestroyEvent(events[s]), 0);
    }
  }
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

TEST_F(StressTest, NothingIsLostOrReorderedOnManyStreams) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] { WorkOnTwoStreams(t, kOperators / kThreads); });
  }
  for (std::thread& thread : threads) thread.join();
}

// All threads on one stream: each thread's own work stays in its order, and all of it is done. A
// thread's callback sees how many of its operators have run.
TEST_F(StressTest, ThreadsShareAStream) {
  constexpr int kEach = kOperators / 10 / kThreads;
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), 0);
  struct Progress {
    HostTensor<float> x{{1, 1, 1}, ACL_FLOAT, 0.0f};
    std::vector<float> seen;
  };
  std::vector<std::unique_ptr<Progress>> progress;
  std::vector<std::unique_ptr<Map>> adders;
  for (int t = 0; t < kThreads; ++t) {
    progress.push_back(std::make_unique<Progress>());
    adders.push_back(std::make_unique<Map>(&progress.back()->x, 1.0f, 1.0f));
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Progress* mine = progress[static_cast<std::size_t>(t)].get();
      for (int k = 0; k < kEach; ++k) {
        ASSERT_EQ(adders[static_cast<std::size_t>(t)]->Enqueue(stream), 0);
        if (k % 10 != 9) continue;
        const auto look = [](void* p) {
          auto* at = static_cast<Progress*>(p);
          at->seen.push_back(at->x.data[0]);
        };
        ASSERT_EQ(aclrtLaunchHostFunc(stream, look, mine), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  for (const std::unique_ptr<Progress>& p : progress) {
    EXPECT_EQ(p->x.data[0], static_cast<float>(kEach));
    ASSERT_EQ(p->seen.size(), static_cast<std::size_t>(kEach / 10));
    for (std::size_t k = 0; k < p->seen.size(); ++k) {
      EXPECT_EQ(p->seen[k], static_cast<float>(10 * (k + 1)));
    }
  }
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

// Streams come and go while others work; everything a stream had queued is done when it is gone.
TEST_F(StressTest, StreamsComeAndGo) {
  constexpr int kRounds = kOperators / 1000;
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      ASSERT_EQ(aclrtSetDevice(0), 0);
      HostTensor<float> x({1, 1, 1}, ACL_FLOAT, 0.0f);
      {
        Map add(&x, 1.0f, 1.0f);
        for (int round = 0; round < kRounds; ++round) {
          aclrtStream stream = nullptr;
          ASSERT_EQ(aclrtCreateStream(&stream), 0);
          for (int k = 0; k < 10; ++k) ASSERT_EQ(add.Enqueue(stream), 0);
          ASSERT_EQ(aclrtDestroyStream(stream), 0);
          ASSERT_EQ(x.data[0], static_cast<float>(10 * (round + 1)));
        }
      }
      ++done;
      ASSERT_EQ(aclrtResetDevice(0), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 4);
}

}  // namespace
}  // namespace anabranch::acl_test
