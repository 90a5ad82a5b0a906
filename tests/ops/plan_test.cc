// How work is cut for more threads than this machine has: nothing runs here.
#include <gtest/gtest.h>

#include <cmath>

#include "src/core/parallel.h"
#include "src/tools/harness/harness.h"

namespace anabranch {
namespace {

// A plan of a call on addresses that nothing reads.
Plan PlanFor(const OperatorEntry& entry, const Case& c, int threads) {
  std::vector<TensorView> views;
  std::uintptr_t address = std::uintptr_t{1} << 40;
  for (const TensorSpec& spec : entry.tensors(c)) {
    views.emplace_back(reinterpret_cast<void*>(address), spec.dtype, spec.sizes);
    const auto bytes = static_cast<std::uintptr_t>(NumElements(spec.sizes)) * DTypeSize(spec.dtype);
    address += (bytes + 4096) / 64 * 64;
  }
  Plan plan;
  const Status status = entry.prepare(c, views, &plan, Context().set_threads(threads));
  EXPECT_TRUE(status.ok()) << status.message();
  return plan;
}

// Rounds of items that the last thread to end has done.
std::int64_t Rounds(const PlanInfo& info) { return CeilDiv(info.work_items, info.threads); }

class EveryPlan : public testing::TestWithParam<std::string> {
 protected:
  const OperatorEntry& entry() const { return *FindOperator(GetParam()); }
  Case CaseOf(std::int64_t tokens, std::int64_t d) const {
    Case c = entry().bench_cases.front();
    c.seq = tokens;
    c.d = d;
    if (c.sources > 1) c.sources = 9;
    return c;
  }
};

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const OperatorEntry& entry : Operators()) names.push_back(entry.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Table, EveryPlan, testing::ValuesIn(Names()),
                         [](const auto& param_info) { return param_info.param; });

constexpr std::int64_t kTokens[] = {512,  513,  520,  577,  600,  1000,  1024,  1100,
                                    2047, 2048, 4100, 8191, 8192, 16385, 65536, 65539};
constexpr std::int64_t kHidden[] = {1024, 4096, 7168};

TEST_P(EveryPlan, KeepsTheThreadsThatTakePartBusy) {
  for (int threads : {2, 16, 64}) {
    for (std::int64_t tokens : kTokens) {
      for (std::int64_t d : kHidden) {
        const Plan plan = PlanFor(entry(), CaseOf(tokens, d), threads);
        const PlanInfo& info = plan.info();
        ASSERT_GE(info.work_items, 1);
        ASSERT_LE(info.threads, threads);
        const std::int64_t capacity = Rounds(info) * info.threads;
        // Sixteen matrices at once are an item whether there are as many or not, and 520 of them
        // are work for four threads: 33 items.
        const bool small = GetParam() == "mhc_sinkhorn_backward" && info.tile == 16;
        EXPECT_LE(static_cast<double>(capacity - info.work_items),
                  (small ? 0.1 : 0.05) * static_cast<double>(capacity))
            << plan.Describe() << "T=" << tokens << " D=" << d << ", " << threads << " threads";
      }
    }
  }
}

// Where an item is a tile of tokens, the thread that ends last has hardly more of them than if they
// were dealt out one by one.
TEST_P(EveryPlan, EndsAsSoonAsWholeTokensAllow) {
  const std::string name = GetParam();
  // Blocks of D; chunks of tokens that the bits depend on are dealt out like tiles.
  if (name == "mhc_pre_backward" || name == "mhc_pre_sinkhorn_backward" ||
      name == "mhc_head_backward") {
    GTEST_SKIP();
  }
  for (int threads : {2, 16, 64}) {
    for (std::int64_t tokens : kTokens) {
      for (std::int64_t d : kHidden) {
        const Plan plan = PlanFor(entry(), CaseOf(tokens, d), threads);
        const PlanInfo& info = plan.info();
        if (20 * info.threads < 17 * threads) continue;  // the work is too small for all of them
        const auto last = static_cast<double>(Rounds(info) * info.tile);
        const auto least = static_cast<double>(CeilDiv(tokens, threads));
        EXPECT_LE(last, std::max(1.13 * least, least + 1))
            << plan.Describe() << "T=" << tokens << " D=" << d << ", " << threads << " threads";
      }
    }
  }
}

// Those take blocks of D, narrower ones for more threads.
TEST(PlanTest, TheProjectionsBackwardFeedsManyThreads) {
  for (const char* name : {"mhc_pre_backward", "mhc_pre_sinkhorn_backward", "mhc_head_backward"}) {
    const OperatorEntry& entry = *FindOperator(name);
    Case c = entry.bench_cases.front();
    c.seq = 8191;
    for (const auto& [d, least] : {std::pair{1024, 32}, {4096, 64}, {7168, 56}}) {
      c.d = d;
      EXPECT_GE(PlanFor(entry, c, 64).info().threads, least) << name << " D=" << d;
    }
  }
}

TEST(PlanTest, AsFewThreadsAsEndAsSoon) {
  EXPECT_EQ(BusyThreads(520, 64), 58);
  EXPECT_EQ(BusyThreads(512, 64), 64);
  EXPECT_EQ(BusyThreads(3, 64), 3);
  EXPECT_EQ(BusyThreads(0, 64), 1);
  EXPECT_EQ(BusyThreads(9, 1), 1);
}

}  // namespace
}  // namespace anabranch
