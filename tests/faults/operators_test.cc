// What every operator does when the machine fails it: no memory, threads that throw, sizes that no
// machine has, a fork, signals.
#include <gtest/gtest.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <stdexcept>

#include "src/tools/harness/harness.h"
#include "tests/faults/allocation.h"

namespace anabranch {
namespace {

using faults::FailingAllocations;
using faults::LiveBlocks;
using faults::Mode;
using harness::CaseTensors;
using harness::Layout;
using harness::OutputBits;
using harness::Random;

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const OperatorEntry& entry : Operators()) names.push_back(entry.name);
  return names;
}

// So many that every operator wants more than one thread.
constexpr std::int64_t kTokensForThreads = 40000;

// Memory of a caller for a plan.
class Workspace {
 public:
  explicit Workspace(const Plan& plan) : memory_(new std::byte[plan.workspace_bytes() + 64]) {}
  std::byte* data() const {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
    return memory_.get() + (64 - address % 64) % 64;
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

class EveryOperatorFails : public testing::TestWithParam<std::string> {
 protected:
  const OperatorEntry& entry() const { return *FindOperator(GetParam()); }

  // A call of this size for the variant, filled in, or nothing if the operator has no such variant.
  bool Make(int variant, std::int64_t tokens, std::int64_t hidden, DType dtype = DType::kFloat32) {
    case_ = Case();
    case_.seq = tokens;
    case_.n = 3;
    case_.d = hidden;
    case_.num_iters = 2;
    case_.variant = variant;
    case_.dtype = dtype;
    if (!entry().supports(case_)) return false;
    Random random(5);
    tensors_ = Allocate(entry(), case_, Layout::kDense, random);
    FillInputs(entry(), case_, tensors_, random);
    views_ = tensors_.Views();
    return true;
  }

  // Calls test(variant) for every variant in every dtype.
  template <class Test>
  void ForEveryForm(std::int64_t tokens, std::int64_t hidden, const Test& test) {
    int forms = 0;
    for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      for (std::size_t v = 0; v < entry().variants.size(); ++v) {
        if (!Make(static_cast<int>(v), tokens, hidden, dtype)) continue;
        ++forms;
        test(std::string(entry().variants[v]) + " " + DTypeName(dtype));
      }
    }
    EXPECT_GE(forms, 4) << "one form a dtype at the least";
  }

  Status Call(const Context& context) {
    Plan plan;
    Status status = entry().prepare(case_, views_, &plan, context);
    if (!status.ok()) return status;
    return plan.Run(context);
  }

  Case case_;
  CaseTensors tensors_;
  std::vector<TensorView> views_;
};

INSTANTIATE_TEST_SUITE_P(Table, EveryOperatorFails, testing::ValuesIn(Names()),
                         [](const auto& param_info) { return param_info.param; });

// The k-th allocation of a call fails, for every k: the call says kOutOfMemory, or did without that
// memory and is right. Nothing is left allocated.
TEST_P(EveryOperatorFails, SaysSoWhenAnAllocationFails) {
  ForEveryForm(3, 20, [&](const std::string& form) {
    const Context context;
    ASSERT_TRUE(Call(context).ok());
    const std::string right = OutputBits(tensors_);
    for (Mode mode : {Mode::kOne, Mode::kAllFrom}) {
      for (std::int64_t k = 1;; ++k) {
        ASSERT_LT(k, 1000);
        const std::int64_t before = LiveBlocks();
        StatusCode code = StatusCode::kOk;
        bool failed = false;
        {
          const FailingAllocations failing(k, mode);
          code = Call(context).code();
          failed = failing.failed();
        }
        EXPECT_EQ(LiveBlocks(), before) << form << ", allocation " << k;
        if (code == StatusCode::kOk) {
          EXPECT_EQ(OutputBits(tensors_), right) << form << ", allocation " << k;
        } else {
          EXPECT_EQ(code, StatusCode::kOutOfMemory) << form << ", allocation " << k;
        }
        if (!failed) break;  // the call has fewer allocations than k
      }
    }
  });
}

// A wrong call's message needs memory: without it the call is refused all the same.
TEST_P(EveryOperatorFails, RefusesWrongArgumentsWithoutMemoryForAMessage) {
  ASSERT_TRUE(Make(0, 3, 20));
  views_[0].sizes[0] = 77;
  for (std::int64_t k = 1;; ++k) {
    const FailingAllocations failing(k, Mode::kAllFrom);
    const StatusCode code = Call(Context()).code();
    EXPECT_NE(code, StatusCode::kOk);
    if (!failing.failed()) break;
  }
}

// Prepare allocates a plan; Run with the caller's workspace allocates nothing.
TEST_P(EveryOperatorFails, RunAllocatesNothing) {
  ForEveryForm(8, 40, [&](const std::string& form) {
    const Context context = Context().set_threads(1);
    Plan plan;
    ASSERT_TRUE(entry().prepare(case_, views_, &plan, context).ok());
    const Workspace workspace(plan);
    const FailingAllocations counting(0);
    EXPECT_TRUE(plan.Run(workspace.data(), plan.workspace_bytes(), context).ok());
    EXPECT_EQ(counting.calls(), 0) << form;
  });
}

void Throws(void*, std::int64_t, Context::Task, void*) { throw std::runtime_error("no threads"); }
void ThrowsHalfway(void*, std::int64_t, Context::Task task, void* state) {
  task(state, 0);
  throw 1;
}

TEST_P(EveryOperatorFails, SurvivesAParallelForThatThrows) {
  ASSERT_TRUE(Make(0, kTokensForThreads, 16));
  for (const Context::ParallelFor pool : {&Throws, &ThrowsHalfway}) {
    const Context context = Context().set_parallel_for(pool, nullptr, 4);
    Plan plan;
    ASSERT_TRUE(entry().prepare(case_, views_, &plan, context).ok());
    ASSERT_GT(plan.info().threads, 1) << "this call does not ask for threads";
    const Status status = plan.Run(context);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find("parallel_for threw"), std::string::npos) << status.message();
  }
  EXPECT_TRUE(Call(Context()).ok());
}

// Sizes beyond any memory: refused, or planned with a workspace that cannot be had; never an
// allocation of that size, never a wrapped-around product.
TEST_P(EveryOperatorFails, RefusesHugeSizesBeforeAllocating) {
  int planned = 0;  // so that the arithmetic of planning is reached
  for (std::int64_t size : {std::int64_t{1} << 31, std::int64_t{1} << 40, std::int64_t{1} << 61}) {
    for (int what = 0; what < 3; ++what) {
      ASSERT_TRUE(Make(0, 3, 20));
      Case c = case_;
      if (what == 0) c.seq = size;
      if (what == 1) c.d = size;
      if (what == 2) c.batch = size;
      const std::vector<TensorSpec> specs = entry().tensors(c);
      std::vector<TensorView> views = views_;
      for (std::size_t k = 0; k < views.size(); ++k) {
        views[k].sizes = specs[k].sizes;
        views[k].strides = ContiguousStrides(views[k].sizes);
        // Apart from each other, so that it is not an overlap that is refused.
        views[k].data = reinterpret_cast<void*>((k + 1) << 56);
      }
      const FailingAllocations counting(0);
      Plan plan;
      const Status status = entry().prepare(c, views, &plan, Context());
      EXPECT_EQ(status.message().find("overlap"), std::string::npos) << status.message();
      planned += status.ok();
      EXPECT_LT(counting.largest(), std::size_t{1} << 20) << size;
    }
  }
  EXPECT_GE(planned, 1);
}

// The child of a fork after use has one thread; calls work there and give the same bits.
TEST_P(EveryOperatorFails, WorksInTheChildOfAFork) {
  ASSERT_TRUE(Make(0, kTokensForThreads, 16));
  const Context context = Context().set_threads(4);
  Plan plan;
  ASSERT_TRUE(entry().prepare(case_, views_, &plan, context).ok());
  ASSERT_GT(plan.info().threads, 1) << "this call does not ask for threads";
  ASSERT_TRUE(Call(context).ok());
  const std::string right = OutputBits(tensors_);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    for (std::size_t k = 0; k < views_.size(); ++k) {
      if (tensors_.specs[k].output) harness::FillBytes(views_[k], std::byte{0xff});
    }
    const bool same = Call(context).ok() && OutputBits(tensors_) == right;
    _exit(same ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

// The bookkeeping of the threads fails too: the call is done by the caller's thread, or refused.
TEST_P(EveryOperatorFails, IsRightWithoutMemoryForThreads) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "malloc is ThreadSanitizer's: oneTBB would see half of its allocations fail";
#endif
  ASSERT_TRUE(Make(0, kTokensForThreads, 16));
  const Context context = Context().set_threads(4);
  Plan plan;
  ASSERT_TRUE(entry().prepare(case_, views_, &plan, context).ok());
  ASSERT_GT(plan.info().threads, 1) << "this call does not ask for threads";
  const Workspace workspace(plan);
  const auto run = [&] { return plan.Run(workspace.data(), plan.workspace_bytes(), context); };
  ASSERT_TRUE(run().ok());
  const std::string right = OutputBits(tensors_);
  bool failed = true;
  for (std::int64_t k = 1; failed && k <= 100; ++k) {
    for (Mode mode : {Mode::kOne, Mode::kAllFrom}) {
      for (std::size_t t = 0; t < views_.size(); ++t) {
        if (tensors_.specs[t].output) harness::FillBytes(views_[t], std::byte{0xff});
      }
      Status status;
      {
        const FailingAllocations failing(k, mode);
        status = run();
        failed = failing.failed();
      }
      if (!status.ok()) {
        EXPECT_FALSE(status.message().empty()) << "allocation " << k;
        continue;
      }
      EXPECT_TRUE(OutputBits(tensors_) == right) << "allocation " << k;
    }
  }
  ASSERT_TRUE(run().ok()) << "with memory again";
  EXPECT_TRUE(OutputBits(tensors_) == right) << "with memory again";
}

void Ignore(int) {}

// Signals that arrive all the time change nothing.
TEST(SignalsTest, AStreamOfSignalsChangesNothing) {
  struct sigaction action = {};
  struct sigaction old = {};
  action.sa_handler = &Ignore;  // without SA_RESTART: system calls return early
  ASSERT_EQ(sigaction(SIGALRM, &action, &old), 0);
  const OperatorEntry& entry = *FindOperator("mhc_pre");
  Case c;
  c.seq = 64;
  c.d = 256;
  harness::CaseChecker checker(entry, c, 7);
  const itimerval often = {{0, 500}, {0, 500}};
  const itimerval never = {};
  setitimer(ITIMER_REAL, &often, nullptr);
  for (int k = 0; k < 20; ++k) {
    const harness::Verdict verdict = checker.Check(Context().set_threads(4));
    EXPECT_TRUE(verdict.ok) << verdict.message;
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &old, nullptr);
}

// What the public functions that return no Status do without memory.
TEST(ContextTest, IsMadeWithoutMemory) {
  const FailingAllocations failing(1, Mode::kAllFrom);
  const Context context;
  EXPECT_GE(context.threads(), 1);
}

}  // namespace
}  // namespace anabranch
