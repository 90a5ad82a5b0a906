#include "anabranch/context.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "anabranch/mhc_post.h"
#include "src/core/parallel.h"

namespace anabranch {
namespace {

TEST(ContextTest, EveryItemRunsOnce) {
  for (int threads : {1, 2, 5, 64}) {
    std::vector<std::atomic<int>> hits(1000);
    Context context;
    context.set_threads(threads);
    ForEachItem(context, threads, 1000, [&](int slot, std::int64_t item) {
      EXPECT_LT(slot, threads);
      hits[static_cast<std::size_t>(item)].fetch_add(1);
    });
    for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
  }
}

struct Pool {
  int calls = 0;
};

void OwnParallelFor(void* pool, std::int64_t count, Context::Task task, void* state) {
  ++static_cast<Pool*>(pool)->calls;
  std::vector<std::thread> threads;
  for (std::int64_t i = 0; i < count; ++i) threads.emplace_back(task, state, i);
  for (std::thread& thread : threads) thread.join();
}

void ThrowingParallelFor(void*, std::int64_t, Context::Task, void*) {
  throw std::runtime_error("no threads today");
}

struct PostCall {
  static constexpr std::int64_t kTokens = 512, kStreams = 4, kHidden = 512;
  std::vector<float> x = std::vector<float>(kTokens * kStreams * kHidden, 1.0f);
  std::vector<float> h_out = std::vector<float>(kTokens * kHidden, 2.0f);
  std::vector<float> h_post = std::vector<float>(kTokens * kStreams, 0.5f);
  std::vector<float> y = std::vector<float>(x.size(), -1.0f);
  MhcPostArgs Args() {
    MhcPostArgs args;
    args.x = TensorView(x.data(), DType::kFloat32, {kTokens, kStreams, kHidden});
    args.h_out = TensorView(h_out.data(), DType::kFloat32, {kTokens, kHidden});
    args.h_post = TensorView(h_post.data(), DType::kFloat32, {kTokens, kStreams});
    args.y = TensorView(y.data(), DType::kFloat32, {kTokens, kStreams, kHidden});
    return args;
  }
};

TEST(ContextTest, ACallersPoolIsUsed) {
  PostCall call;
  Pool pool;
  Context context;
  context.set_parallel_for(&OwnParallelFor, &pool, 3);
  Plan plan;
  ASSERT_TRUE(Prepare(call.Args(), &plan, context).ok());
  ASSERT_TRUE(plan.Run(context).ok());
  EXPECT_EQ(pool.calls, 1);
  for (float value : call.y) ASSERT_EQ(value, 2.0f);
}

TEST(ContextTest, AThrowingPoolBecomesAStatus) {
  PostCall call;
  Context context;
  context.set_parallel_for(&ThrowingParallelFor, nullptr, 2);
  Plan plan;
  ASSERT_TRUE(Prepare(call.Args(), &plan, context).ok());
  const Status status = plan.Run(context);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("mhc_post"), std::string::npos);
}

TEST(PlanTest, EmptyPlansAreRefused) {
  const Plan plan;
  EXPECT_EQ(plan.Run().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(plan.workspace_bytes(), 0u);
}

TEST(PlanTest, CanBeDescribedAndRunFromSeveralThreads) {
  PostCall call;
  Plan plan;
  ASSERT_TRUE(Prepare(call.Args(), &plan).ok());
  EXPECT_NE(plan.Describe().find("mhc_post"), std::string::npos);
  EXPECT_NE(plan.Describe().find(TargetName(plan.info().target)), std::string::npos);
  EXPECT_EQ(plan.info().kernel, "n4");
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([] {
      PostCall own;
      Plan own_plan;
      ASSERT_TRUE(Prepare(own.Args(), &own_plan).ok());
      ASSERT_TRUE(own_plan.Run().ok());
      for (float value : own.y) ASSERT_EQ(value, 2.0f);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace anabranch
