// aclrtFree and queued work that still needs the block.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "aclnnop/aclnn_mhc_post.h"
#include "aclnnop/aclnn_mhc_pre.h"
#include "tests/acl/fixture.h"

namespace anabranch::acl_test {
namespace {

using namespace std::chrono_literals;

// Work that holds its stream until it is opened.
class Gate {
 public:
  explicit Gate(aclrtStream stream) {
    EXPECT_EQ(aclrtLaunchHostFunc(
                  stream, [](void* gate) { static_cast<Gate*>(gate)->future_.wait(); }, this),
              0);
  }
  void Open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
  std::shared_future<void> future_ = opened_.get_future().share();
};

class FreeTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    ASSERT_EQ(aclrtCreateStream(&stream_), 0);
  }
  void TearDown() override {
    EXPECT_EQ(aclrtDestroyStream(stream_), 0);
    EXPECT_EQ(aclrtResetDevice(0), 0);
  }
  static void* Block(std::size_t bytes) {
    void* block = nullptr;
    EXPECT_EQ(aclrtMalloc(&block, bytes, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    return block;
  }
  // The free has not ended before the gate opens, and ends then. That it waits is seen by a wait of
  // ours that ends without it; a slow machine cannot make this fail.
  template <class Free>
  static void ExpectWaits(Gate* gate, const Free& free) {
    std::future<int> freed = std::async(std::launch::async, free);
    EXPECT_EQ(freed.wait_for(30ms), std::future_status::timeout);
    gate->Open();
    EXPECT_EQ(freed.get(), 0);
  }

  aclrtStream stream_ = nullptr;
};

TEST_F(FreeTest, WaitsForFillsAndCopies) {
  for (int kind = 0; kind < 3; ++kind) {
    std::vector<char> other(256, 'a');
    void* block = Block(256);
    std::memset(block, 'b', 256);
    Gate gate(stream_);
    if (kind == 0) {
      ASSERT_EQ(aclrtMemsetAsync(block, 256, 0, 256, stream_), 0);
    } else if (kind == 1) {
      ASSERT_EQ(aclrtMemcpyAsync(block, 256, other.data(), 256, ACL_MEMCPY_HOST_TO_DEVICE, stream_),
                0);
    } else {
      ASSERT_EQ(aclrtMemcpyAsync(other.data(), 256, block, 256, ACL_MEMCPY_DEVICE_TO_HOST, stream_),
                0);
    }
    ExpectWaits(&gate, [block] { return aclrtFree(block); });
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
    if (kind == 2) {
      EXPECT_EQ(other, std::vector<char>(256, 'b'));
    }
  }
}

TEST_F(FreeTest, OfHostMemoryWaitsToo) {
  void* block = nullptr;
  ASSERT_EQ(aclrtMallocHost(&block, 64), 0);
  std::memset(block, 'c', 64);
  std::vector<char> to(64);
  Gate gate(stream_);
  ASSERT_EQ(aclrtMemcpyAsync(to.data(), 64, block, 64, ACL_MEMCPY_HOST_TO_HOST, stream_), 0);
  ExpectWaits(&gate, [block] { return aclrtFreeHost(block); });
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(to, std::vector<char>(64, 'c'));
}

// A part of a block is enough, and what does not touch it is not waited for.
TEST_F(FreeTest, OnlyBlocksThatAreHeldWait) {
  auto* held = static_cast<char*>(Block(4096));
  void* other = Block(4096);
  Gate gate(stream_);
  ASSERT_EQ(aclrtMemsetAsync(held + 4000, 96, 0, 96, stream_), 0);
  EXPECT_EQ(aclrtFree(other), 0);
  ExpectWaits(&gate, [held] { return aclrtFree(held); });
}

// Every tensor of a call and its workspace.
TEST_F(FreeTest, WaitsForOperators) {
  constexpr std::int64_t kD = 64;
  const std::vector<std::int64_t> sizes[] = {{3, 4, kD}, {24, 4 * kD}, {3},      {24},
                                             {3, kD},    {3, 4},       {3, 4, 4}};
  for (std::size_t freed = 0; freed <= std::size(sizes); ++freed) {
    std::vector<void*> blocks;
    std::vector<aclTensor*> t;
    for (const std::vector<std::int64_t>& shape : sizes) {
      std::int64_t count = 1;
      for (std::int64_t size : shape) count *= size;
      const auto bytes = static_cast<std::size_t>(count) * 4;
      blocks.push_back(Block(bytes));
      std::memset(blocks.back(), 0, bytes);
      t.push_back(aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND,
                                  shape.data(), shape.size(), blocks.back()));
    }
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    ASSERT_EQ(aclnnMhcPreGetWorkspaceSize(t[0], t[1], t[2], t[3], nullptr, 1e-6, 1e-6, t[4], t[5],
                                          t[6], nullptr, nullptr, nullptr, &size, &executor),
              0)
        << aclGetRecentErrMsg();
    ASSERT_GT(size, 0u);
    blocks.push_back(Block(size));
    Gate gate(stream_);
    ASSERT_EQ(aclnnMhcPre(blocks.back(), size, executor, stream_), 0) << aclGetRecentErrMsg();
    for (aclTensor* tensor : t) aclDestroyTensor(tensor);
    ExpectWaits(&gate, [block = blocks[freed]] { return aclrtFree(block); });
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      if (k == freed) continue;
      EXPECT_EQ(aclrtFree(blocks[k]), 0);
    }
  }
}

// A callback of the stream must not wait for work behind it: the block is freed by that work.
TEST_F(FreeTest, FromACallbackEndsAtOnce) {
  struct Shared {
    void* block;
    std::promise<int> freed;
  } shared{Block(1024), {}};
  std::vector<char> seen(1024, 'x');
  std::memset(shared.block, 'd', 1024);
  Gate gate(stream_);
  ASSERT_EQ(aclrtLaunchHostFunc(
                stream_,
                [](void* p) {
                  auto* s = static_cast<Shared*>(p);
                  s->freed.set_value(aclrtFree(s->block));
                },
                &shared),
            0);
  ASSERT_EQ(
      aclrtMemcpyAsync(seen.data(), 1024, shared.block, 1024, ACL_MEMCPY_DEVICE_TO_HOST, stream_),
      0);
  gate.Open();
  EXPECT_EQ(shared.freed.get_future().get(), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(seen, std::vector<char>(1024, 'd'));
  EXPECT_NE(aclrtFree(shared.block), 0);  // it is freed
}

}  // namespace
}  // namespace anabranch::acl_test
