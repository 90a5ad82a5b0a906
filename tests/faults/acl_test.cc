// What the C face does when the machine fails it: no memory, callbacks that throw, forks, signals.
#include <gtest/gtest.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <stdexcept>
#include <string>

#include "tests/acl/catalog_call.h"
#include "tests/faults/allocation.h"

namespace anabranch::acl_test {
namespace {

using faults::FailingAllocations;
using faults::LiveBlocks;
using faults::Mode;
using harness::CaseTensors;
using harness::OutputBits;
using harness::Random;

// The k-th allocation inside `armed` fails, for every k and in both modes: it returns 0 or an
// error, and once `clean` has run nothing more is allocated than before.
void FailEveryAllocation(const std::function<int()>& armed, const std::function<void()>& clean,
                         const std::function<void(std::int64_t k)>& after_success) {
  for (Mode mode : {Mode::kOne, Mode::kAllFrom}) {
    bool failed = true;
    for (std::int64_t k = 1; failed; ++k) {
      ASSERT_LT(k, 3000);
      const std::int64_t before = LiveBlocks();
      int code = 0;
      {
        const FailingAllocations failing(k, mode);
        code = armed();
        failed = failing.failed();
      }
      if (code == 0) after_success(k);
      if (!failed) {
        EXPECT_EQ(code, 0) << aclGetRecentErrMsg();
      }
      clean();
      aclGetRecentErrMsg();
      EXPECT_LE(LiveBlocks(), before) << "allocation " << k << ", code " << code;
    }
  }
}

// Makes what is made once in a process or thread and kept: message memory, tables.
void WarmUp() {
  for (int k = 0; k < 80; ++k) aclrtFree(nullptr);
  aclGetRecentErrMsg();
  std::vector<aclScalar*> scalars;
  float value = 1;
  for (int k = 0; k < 1000; ++k) scalars.push_back(aclCreateScalar(&value, ACL_FLOAT));
  for (aclScalar* scalar : scalars) aclDestroyScalar(scalar);
}

class AclOperatorFails : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Table, AclOperatorFails, testing::ValuesIn(CatalogCall::Names()),
                         [](const auto& param_info) { return param_info.param; });

TEST_P(AclOperatorFails, SaysSoWhenAnAllocationFails) {
  const OperatorEntry& entry = *FindOperator(GetParam());
  ASSERT_EQ(aclrtSetDevice(0), 0);
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), 0);
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
  int forms = 0;
  for (std::size_t f = 0; f < entry.variants.size() * std::size(kDTypes); ++f) {
    const std::size_t v = f / std::size(kDTypes);
    Case c;
    c.seq = 3;
    c.n = 3;
    c.d = 20;
    c.num_iters = 2;
    c.variant = static_cast<int>(v);
    c.dtype = kDTypes[f % std::size(kDTypes)];
    if (!entry.supports(c) || !CatalogCall::Exists(entry, c)) continue;
    Random random(8);
    CaseTensors tensors = Allocate(entry, c, harness::Layout::kDense, random);
    FillInputs(entry, c, tensors, random);
    CatalogCall call(entry, c, tensors);
    ASSERT_EQ(call.Run(stream), 0) << aclGetRecentErrMsg();
    call.End();
    const std::string right = OutputBits(tensors);
    WarmUp();
    FailEveryAllocation([&] { return call.Run(stream); }, [&] { call.End(); },
                        [&](std::int64_t k) {
                          EXPECT_EQ(OutputBits(tensors), right)
                              << entry.variants[v] << ", allocation " << k;
                        });
    ++forms;
  }
  EXPECT_GT(forms, 0);
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

// In the child of a fork the executor of the parent is unknown, and the call works once the child
// has set up the runtime for itself.
TEST_P(AclOperatorFails, WorksInTheChildOfAFork) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer allows no threads in the child of a fork";
#endif
  const OperatorEntry& entry = *FindOperator(GetParam());
  const Case c = CatalogCall::FirstForm(entry, {.seq = 300, .n = 3, .d = 256, .num_iters = 2});
  Random random(9);
  CaseTensors tensors = Allocate(entry, c, harness::Layout::kDense, random);
  FillInputs(entry, c, tensors, random);
  ASSERT_EQ(aclrtSetDevice(0), 0);
  CatalogCall call(entry, c, tensors);
  ASSERT_EQ(call.Run(nullptr), 0) << aclGetRecentErrMsg();
  const std::string right = OutputBits(tensors);
  CatalogCall prepared(entry, c, tensors);
  ASSERT_EQ(prepared.Prepare(), 0) << aclGetRecentErrMsg();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
      if (tensors.specs[k].output) {
        harness::FillBytes(tensors.buffers[k].view, std::byte{0xff});
      }
    }
    bool good = aclrtSetDevice(0) == 0 && prepared.Execute(nullptr) == 161002;
    CatalogCall again(entry, c, tensors);
    good = good && again.Run(nullptr) == 0 && OutputBits(tensors) == right;
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  EXPECT_EQ(prepared.Execute(nullptr), 0) << aclGetRecentErrMsg();
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

void Nothing(void*) {}

// Everything of the runtime that is made, used and destroyed, in one go.
struct Everything {
  aclrtContext context = nullptr;
  aclrtStream stream = nullptr, other = nullptr;
  aclrtEvent event = nullptr;
  void* memory = nullptr;
  void* host = nullptr;
  aclTensor* tensor = nullptr;
  aclTensorList* tensors = nullptr;
  aclScalar* scalar = nullptr;
  aclScalarList* scalars = nullptr;
  aclIntArray* ints = nullptr;
  std::int64_t* shape = nullptr;

  int Make() {
    const std::int64_t sizes[] = {2, 3};
    float value = 1;
    std::uint64_t number = 0;
    std::int64_t count = 0;
    const auto check = [](const void* made) { return made == nullptr ? 1 : 0; };
    int code = aclrtCreateContext(&context, 0);
    if (code == 0) code = aclrtCreateStream(&stream);
    if (code == 0) code = aclrtCreateStreamWithConfig(&other, 0, 0);
    if (code == 0) code = aclrtCreateEvent(&event);
    if (code == 0) code = aclrtMalloc(&memory, 256, ACL_MEM_MALLOC_HUGE_FIRST);
    if (code == 0) code = aclrtMallocHost(&host, 256);
    if (code == 0) code = aclrtMemsetAsync(memory, 256, 1, 256, stream);
    if (code == 0) code = aclrtRecordEvent(event, stream);
    if (code == 0) code = aclrtStreamWaitEvent(other, event);
    if (code == 0) {
      code = aclrtMemcpyAsync(host, 256, memory, 256, ACL_MEMCPY_DEVICE_TO_HOST, other);
    }
    if (code == 0) code = aclrtLaunchHostFunc(other, &Nothing, nullptr);
    if (code == 0) code = aclrtSynchronizeEvent(event);
    if (code == 0) code = aclrtResetEvent(event, stream);
    if (code == 0) code = aclrtSynchronizeStream(stream);
    if (code == 0) code = aclrtSynchronizeStream(other);
    if (code == 0) code = aclrtMemset(memory, 256, 0, 256);
    if (code == 0) code = aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1);
    if (code == 0) code = aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &count);
    if (code == 0) code = aclrtSynchronizeDevice();
    if (code != 0) return code;
    tensor = aclCreateTensor(sizes, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, sizes, 2, memory);
    if (check(tensor) != 0) return 1;
    code = aclGetViewShape(tensor, &shape, &number);
    if (code != 0) return code;
    tensors = aclCreateTensorList(&tensor, 1);
    scalar = aclCreateScalar(&value, ACL_FLOAT);
    if (check(tensors) + check(scalar) != 0) return 1;
    const aclScalar* const members[] = {scalar};
    scalars = aclCreateScalarList(members, 1);
    ints = aclCreateIntArray(sizes, 2);
    if (check(scalars) + check(ints) != 0) return 1;
    if (code == 0) code = aclGetScalarListSize(scalars, &number);
    if (code == 0) code = aclrtGetSocName()[0] == '\0' ? 1 : 0;
    return code;
  }

  void End() {
    delete[] shape;
    aclDestroyIntArray(ints);
    if (scalars != nullptr) {
      aclDestroyScalarList(scalars);
    } else {
      aclDestroyScalar(scalar);
    }
    if (tensors != nullptr) {
      aclDestroyTensorList(tensors);
    } else {
      aclDestroyTensor(tensor);
    }
    // The streams first: their work uses the memory.
    if (other != nullptr) {
      EXPECT_EQ(aclrtDestroyStream(other), 0);
    }
    if (stream != nullptr) {
      EXPECT_EQ(aclrtDestroyStream(stream), 0);
    }
    if (host != nullptr) {
      EXPECT_EQ(aclrtFreeHost(host), 0);
    }
    if (memory != nullptr) {
      EXPECT_EQ(aclrtFree(memory), 0);
    }
    if (event != nullptr) {
      EXPECT_EQ(aclrtDestroyEvent(event), 0);
    }
    if (context != nullptr) {
      EXPECT_EQ(aclrtDestroyContext(context), 0);
    }
    *this = Everything();
  }
};

TEST(AclRuntimeFails, SaysSoWhenAnAllocationFails) {
  Everything all;
  ASSERT_EQ(all.Make(), 0) << aclGetRecentErrMsg();
  all.End();
  WarmUp();
  FailEveryAllocation([&] { return all.Make(); }, [&] { all.End(); }, [](std::int64_t) {});
}

// A failed allocation has its own code and a message where there is memory for one.
TEST(AclRuntimeFails, NoMemoryHasItsOwnCode) {
  aclrtContext context = nullptr;
  int code = 0;
  {
    const FailingAllocations failing(1);
    code = aclrtCreateContext(&context, 0);
  }
  EXPECT_EQ(code, ACL_ERROR_BAD_ALLOC);
  EXPECT_NE(std::string(aclGetRecentErrMsg()).find("memory is exhausted"), std::string::npos);
  void* memory = nullptr;
  EXPECT_EQ(aclrtMalloc(&memory, std::size_t{1} << 62, ACL_MEM_MALLOC_HUGE_FIRST),
            ACL_ERROR_RT_MEMORY_ALLOCATION);
  EXPECT_EQ(aclrtMalloc(&memory, SIZE_MAX, ACL_MEM_MALLOC_HUGE_FIRST),
            ACL_ERROR_RT_MEMORY_ALLOCATION);
  EXPECT_EQ(memory, nullptr);
}

class AclStreamFails : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    ASSERT_EQ(aclrtCreateStream(&stream_), 0);
  }
  void TearDown() override {
    EXPECT_EQ(aclrtDestroyStream(stream_), 0);
    EXPECT_EQ(aclrtResetDevice(0), 0);
  }
  aclrtStream stream_ = nullptr;
};

// The stream goes on after a callback that throws; the wait says what happened.
TEST_F(AclStreamFails, ACallbackThatThrowsEndsNothing) {
  int ran = 0;
  ASSERT_EQ(aclrtLaunchHostFunc(
                stream_, [](void*) { throw std::runtime_error("from a callback"); }, nullptr),
            0);
  ASSERT_EQ(aclrtLaunchHostFunc(
                stream_, [](void* p) { ++*static_cast<int*>(p); }, &ran),
            0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_ERROR_INTERNAL_ERROR);
  EXPECT_NE(std::string(aclGetRecentErrMsg()).find("threw an exception"), std::string::npos);
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
}

// So does a thread that processes reports.
TEST_F(AclStreamFails, AReportThatThrowsEndsNothing) {
  const auto self = static_cast<std::uint64_t>(pthread_self());
  ASSERT_EQ(aclrtSubscribeReport(self, stream_), 0);
  ASSERT_EQ(aclrtLaunchCallback([](void*) { throw 1; }, nullptr, ACL_CALLBACK_BLOCK, stream_), 0);
  EXPECT_EQ(aclrtProcessReport(-1), ACL_ERROR_INTERNAL_ERROR);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0) << aclGetRecentErrMsg();
  EXPECT_EQ(aclrtUnSubscribeReport(self, stream_), 0);
}

// In the child of a fork the parent's handles are unknown, its memory is there, and a runtime set
// up anew works.
TEST_F(AclStreamFails, AChildOfAForkStartsAnew) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer allows no threads in the child of a fork";
#endif
  int* memory = nullptr;
  ASSERT_EQ(aclrtMalloc(reinterpret_cast<void**>(&memory), 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  *memory = 42;
  ASSERT_EQ(aclrtLaunchHostFunc(stream_, &Nothing, nullptr), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    bool good = aclrtSynchronizeStream(stream_) == ACL_ERROR_RT_INVALID_HANDLE;
    good = good && aclrtSynchronizeDevice() == ACL_ERROR_RT_CONTEXT_NULL;
    good = good && *memory == 42 && aclrtFree(memory) == 0;
    good = good && aclInit(nullptr) == 0 && aclrtSetDevice(0) == 0;
    aclrtStream fresh = nullptr;
    int ran = 0;
    good = good && aclrtCreateStream(&fresh) == 0 && fresh != stream_;
    good = good &&
           aclrtLaunchHostFunc(
               fresh, [](void* p) { ++*static_cast<int*>(p); }, &ran) == 0 &&
           aclrtSynchronizeStream(fresh) == 0 && ran == 1;
    good = good && aclrtDestroyStream(fresh) == 0 && aclrtResetDevice(0) == 0;
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(aclrtFree(memory), 0);
}

std::atomic<int> signals_seen = 0;  // set in a handler, read by another thread
void Count(int) { ++signals_seen; }

// A handler runs during a wait and the wait goes on.
TEST_F(AclStreamFails, AWaitGoesOnAfterASignal) {
  struct sigaction action = {};
  struct sigaction old = {};
  action.sa_handler = &Count;
  ASSERT_EQ(sigaction(SIGINT, &action, &old), 0);
  signals_seen = 0;
  ASSERT_EQ(aclrtLaunchHostFunc(
                stream_,
                [](void*) {
                  kill(getpid(), SIGINT);
                  while (signals_seen == 0) usleep(100);
                },
                nullptr),
            0);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 60000), 0);
  EXPECT_EQ(signals_seen, 1);
  sigaction(SIGINT, &old, nullptr);
}

// Without a handler an interrupt ends a program that waits.
TEST_F(AclStreamFails, AnInterruptEndsAProgramThatWaits) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer allows no threads in the child of a fork";
#endif
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::signal(SIGINT, SIG_DFL);
    aclrtStream stream = nullptr;
    if (aclrtSetDevice(0) != 0 || aclrtCreateStream(&stream) != 0) _exit(1);
    aclrtLaunchHostFunc(
        stream,
        [](void*) {
          kill(getpid(), SIGINT);
          for (;;) pause();
        },
        nullptr);
    aclrtSynchronizeStream(stream);
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << "status " << status;
}

}  // namespace
}  // namespace anabranch::acl_test
