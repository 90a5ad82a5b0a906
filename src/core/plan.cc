#include "anabranch/plan.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "src/core/caught.h"
#include "src/core/plan_impl.h"

namespace anabranch {
namespace {

bool Verbose() {
  static const bool verbose = [] {
    const char* value = std::getenv("ANABRANCH_VERBOSE");
    return value != nullptr && *value != '\0' && *value != '0';
  }();
  return verbose;
}

void PrintCall(const PlanImpl& plan, int threads, double seconds) {
  const PlanInfo& info = plan.info;
  std::fprintf(stderr,
               "anabranch: %s %s kernel=%s target=%s threads=%d tile=%lld streaming=%d "
               "workspace=%zu time=%.3fus\n",
               info.op, plan.Shapes().c_str(), info.kernel.data(), TargetName(info.target), threads,
               static_cast<long long>(info.tile), info.streaming ? 1 : 0, info.workspace_bytes,
               seconds * 1e6);
}

}  // namespace

Plan::Plan() = default;
Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::Plan(std::unique_ptr<PlanImpl> impl) : impl_(std::move(impl)) {}

std::size_t Plan::workspace_bytes() const { return impl_ ? impl_->info.workspace_bytes : 0; }

namespace {

Status CheckWorkspace(const PlanInfo& info, const void* workspace, std::size_t workspace_bytes) {
  if (workspace_bytes < info.workspace_bytes) {
    return Status(StatusCode::kInvalidArgument,
                  std::string(info.op) + ": workspace has " + std::to_string(workspace_bytes) +
                      " bytes, expected at least " + std::to_string(info.workspace_bytes));
  }
  if (info.workspace_bytes > 0 && workspace == nullptr) {
    return Status(StatusCode::kNullArgument, std::string(info.op) +
                                                 ": workspace is null, expected " +
                                                 std::to_string(info.workspace_bytes) + " bytes");
  }
  if (info.workspace_bytes > 0 &&
      reinterpret_cast<std::uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    return Status(StatusCode::kInvalidArgument,
                  std::string(info.op) + ": workspace is misaligned, expected 64-byte alignment");
  }
  return Status();
}

}  // namespace

Status Plan::Run(void* workspace, std::size_t workspace_bytes, const Context& context) const try {
  if (!impl_)
    return Status(StatusCode::kInvalidArgument, "plan: is empty, expected a prepared one");
  const PlanInfo& info = impl_->info;
  if (Status status = CheckWorkspace(info, workspace, workspace_bytes); !status.ok()) return status;
  try {
    if (!Verbose()) {
      impl_->Run(static_cast<std::byte*>(workspace), context);
      return Status();
    }
    const auto start = std::chrono::steady_clock::now();
    impl_->Run(static_cast<std::byte*>(workspace), context);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    PrintCall(*impl_, info.threads < context.threads() ? info.threads : context.threads(),
              elapsed.count());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {
    return Status(StatusCode::kInternal,
                  std::string(info.op) + ": parallel_for threw an exception, expected none");
  }
  return Status();
} catch (...) {
  return Caught();
}

Status Plan::Run(const Context& context) const try {
  const std::size_t bytes = workspace_bytes();
  if (bytes == 0) return Run(nullptr, 0, context);
  void* workspace = ::operator new(bytes, std::align_val_t(kWorkspaceAlignment), std::nothrow);
  if (workspace == nullptr) {
    return Status(StatusCode::kOutOfMemory, std::string(impl_->info.op) + ": no memory for " +
                                                std::to_string(bytes) + " bytes of workspace");
  }
  Status status = Run(workspace, bytes, context);
  ::operator delete(workspace, std::align_val_t(kWorkspaceAlignment));
  return status;
} catch (...) {
  return Caught();
}

const PlanInfo& Plan::info() const {
  static const PlanInfo empty;
  return impl_ ? impl_->info : empty;
}

std::string Plan::Shapes() const { return impl_ ? impl_->Shapes() : ""; }

std::string Plan::Describe() const {
  if (!impl_) return "empty plan\n";
  const PlanInfo& i = impl_->info;
  std::string text = std::string(i.op) + " " + Shapes() + "\n";
  text += "  kernel     " + std::string(i.kernel) + "\n";
  text += "  target     " + std::string(TargetName(i.target)) + " (" + std::string(i.why) + ")\n";
  text += "  threads    " + std::to_string(i.threads) + "\n";
  text += "  work items " + std::to_string(i.work_items) + " of " + std::to_string(i.tile) +
          " tokens\n";
  text += "  stores     " + std::string(i.streaming ? "non-temporal" : "ordinary") + "\n";
  text += "  workspace  " + std::to_string(i.workspace_bytes) + " bytes\n";
  return text;
}

}  // namespace anabranch
