#include "src/acl/op_face.h"

#include <cstdint>
#include <mutex>
#include <utility>

#include "src/acl/context.h"
#include "src/acl/executor.h"
#include "src/acl/holds.h"
#include "src/acl/message.h"
#include "src/acl/object.h"
#include "src/acl/tensor.h"
#include "src/core/context_face.h"

namespace anabranch::acl {
namespace {

aclnnStatus CodeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return ACLNN_SUCCESS;
    case StatusCode::kNullArgument:
      return ACLNN_ERR_PARAM_NULLPTR;
    case StatusCode::kInvalidArgument:
      return ACLNN_ERR_PARAM_INVALID;
    case StatusCode::kUnsupported:
    case StatusCode::kOutOfMemory:
    case StatusCode::kInternal:
      return ACLNN_ERR_RUNTIME_ERROR;
  }
  return ACLNN_ERR_RUNTIME_ERROR;
}

// The tensors of a call, kept alive while phase 1 reads them, with their names in messages.
struct Gathered {
  std::vector<std::string> names;
  std::vector<std::shared_ptr<aclTensor>> tensors;  // null: absent
  Views views;
};

void Add(Gathered* all, std::string name, std::shared_ptr<aclTensor> tensor) {
  all->names.push_back(std::move(name));
  all->views.push_back(tensor ? ToView(*tensor) : TensorView());
  all->tensors.push_back(std::move(tensor));
}

int GatherTensor(const OpCall& call, const TensorArg& arg, Gathered* all) {
  const std::string who = std::string(call.name) + "GetWorkspaceSize: " + arg.name;
  if (arg.tensor == nullptr) {
    if (arg.required) return Fail(ACLNN_ERR_PARAM_NULLPTR, who + " is null, expected a tensor");
    Add(all, arg.name, nullptr);
    return ACLNN_SUCCESS;
  }
  std::shared_ptr<aclTensor> tensor = Find<aclTensor>(arg.tensor);
  if (!tensor) {
    return Fail(ACLNN_ERR_PARAM_INVALID,
                who + " is no live tensor, expected one of aclCreateTensor");
  }
  Add(all, arg.name, std::move(tensor));
  return ACLNN_SUCCESS;
}

int GatherList(const OpCall& call, const ListArg& arg, Gathered* all) {
  const std::string who = std::string(call.name) + "GetWorkspaceSize: " + arg.name;
  if (arg.list == nullptr) {
    return arg.required ? Fail(ACLNN_ERR_PARAM_NULLPTR, who + " is null, expected a tensor list")
                        : ACLNN_SUCCESS;
  }
  const std::shared_ptr<aclTensorList> list = Find<aclTensorList>(arg.list);
  if (!list) {
    return Fail(ACLNN_ERR_PARAM_INVALID,
                who + " is no live list, expected one of aclCreateTensorList");
  }
  for (std::size_t k = 0; k < list->tensors.size(); ++k) {
    Add(all, std::string(arg.name) + "[" + std::to_string(k) + "]", list->tensors[k]);
  }
  return ACLNN_SUCCESS;
}

int CheckTypesAndFormats(const OpCall& call, const Gathered& all) {
  const std::string who = std::string(call.name) + "GetWorkspaceSize: ";
  for (std::size_t k = 0; k < all.tensors.size(); ++k) {
    if (!all.tensors[k] || all.views[k].dtype != DType::kUndefined) continue;
    return Fail(ACLNN_ERR_PARAM_INVALID, who + all.names[k] + " has dtype " +
                                             AclDataTypeName(all.tensors[k]->dtype) +
                                             ", expected FLOAT, FLOAT16 or BF16");
  }
  for (std::size_t k = 0; k < all.tensors.size(); ++k) {
    if (!all.tensors[k] || !IsPrivateFormat(all.tensors[k]->format)) continue;
    return Fail(ACLNN_ERR_PARAM_INVALID,
                who + all.names[k] + " has format " +
                    std::to_string(static_cast<int>(all.tensors[k]->format)) +
                    ", expected a plain one such as ACL_FORMAT_ND");
  }
  return ACLNN_SUCCESS;
}

int CheckLayout(const OpCall& call, const Gathered& all) {
  if (call.layout_tensor < 0) return ACLNN_SUCCESS;
  const auto index = static_cast<std::size_t>(call.layout_tensor);
  const int tokens = all.views[index].rank() - call.inner;
  if (tokens == 1 || tokens == 2) return ACLNN_SUCCESS;
  return Fail(ACLNN_ERR_PARAM_INVALID,
              std::string(call.name) + "GetWorkspaceSize: " + all.names[index] + " has shape " +
                  ToString(all.views[index].sizes) + ", expected " +
                  std::to_string(call.inner + 1) + " or " + std::to_string(call.inner + 2) +
                  " dimensions ([T, ...] or [B, S, ...])");
}

int CheckPlatform(const OpCall& call, const Profile& profile, const Gathered& all) {
  if (!call.facts) return ACLNN_SUCCESS;
  std::string message;
  const aclnnStatus code = CheckProfile(profile, call.facts(all.views), &message);
  if (code == ACLNN_SUCCESS) return code;
  return Fail(code, std::string(call.name) + "GetWorkspaceSize: " + message + " on profile " +
                        profile.name);
}

// The signature's tensors and lists in its order, with the places of their views.
std::vector<Parameter> Arguments(const OpCall& call, const std::vector<std::size_t>& list_sizes) {
  std::vector<Parameter> all;
  std::size_t first_of_list = call.tensors.size();
  std::size_t next_list = 0;
  for (std::size_t k = 0; k <= call.tensors.size(); ++k) {
    for (; next_list < call.lists.size(); ++next_list) {
      const ListArg& list = call.lists[next_list];
      if (k < call.tensors.size() && list.tensors_before > k) break;
      all.push_back({list.name, true, list.output, first_of_list, list_sizes[next_list]});
      first_of_list += list_sizes[next_list];
    }
    if (k == call.tensors.size()) break;
    all.push_back({call.tensors[k].name, false, call.tensors[k].output, k, 1});
  }
  return all;
}

// The views with addresses of nowhere, far apart: phase 1 sizes a workspace, for which programs may
// use one dummy block for all tensors, or give the addresses later.
Views Apart(Views views) {
  constexpr std::uintptr_t kFar = std::uintptr_t{1} << 54;
  std::uintptr_t address = 0;
  for (TensorView& view : views) {
    if (view.defined()) view.data = reinterpret_cast<void*>(address += kFar);
  }
  return views;
}

int PhaseOne(const OpCall& call, std::uint64_t* workspace_size, aclOpExecutor** executor) {
  const std::string who = std::string(call.name) + "GetWorkspaceSize: ";
  const Profile* profile = FindProfile();
  if (profile == nullptr) return Fail(ACLNN_ERR_RUNTIME_ERROR, UnknownProfile(call.name));
  if (workspace_size == nullptr || executor == nullptr) {
    return Fail(ACLNN_ERR_PARAM_NULLPTR, who +
                                             (executor == nullptr ? "executor" : "workspaceSize") +
                                             " is null, expected an address");
  }
  Gathered all;
  for (const TensorArg& arg : call.tensors) {
    if (const int code = GatherTensor(call, arg, &all); code != 0) return code;
  }
  std::vector<std::size_t> list_sizes;
  for (const ListArg& arg : call.lists) {
    const std::size_t before = all.views.size();
    if (const int code = GatherList(call, arg, &all); code != 0) return code;
    list_sizes.push_back(all.views.size() - before);
  }
  if (const int code = CheckTypesAndFormats(call, all); code != 0) return code;
  if (const int code = CheckLayout(call, all); code != 0) return code;
  auto made = std::make_shared<aclOpExecutor>();
  made->call = call.name;
  made->prepare = call.prepare;
  made->arguments = Arguments(call, list_sizes);
  Plan plan;
  const Status status = call.prepare(Apart(all.views), &plan);
  if (!status.ok()) return Fail(CodeOf(status.code()), who + status.message());
  if (const int code = CheckPlatform(call, *profile, all); code != 0) return code;
  *workspace_size = plan.workspace_bytes();
  made->views = std::move(all.views);
  *executor = static_cast<aclOpExecutor*>(Handles().Add(std::move(made)));
  return ACLNN_SUCCESS;
}

// Plans for the addresses, unless that was done since they were set last; the executor is locked.
int PlanForAddresses(const std::string& who, aclOpExecutor* executor) {
  if (executor->plan) return ACLNN_SUCCESS;
  auto plan = std::make_shared<Plan>();
  const Status status = executor->prepare(executor->views, plan.get());
  if (!status.ok()) return Fail(CodeOf(status.code()), who + status.message());
  executor->plan = std::move(plan);
  return ACLNN_SUCCESS;
}

constexpr std::uintptr_t kWorkspaceAlignment = 64;

int CheckWorkspace(const std::string& who, const Plan& plan, const void* workspace,
                   std::uint64_t size) {
  const std::size_t needed = plan.workspace_bytes();
  if (needed == 0) return ACLNN_SUCCESS;
  if (workspace == nullptr) {
    return Fail(ACLNN_ERR_PARAM_NULLPTR,
                who + "workspace is null, expected " + std::to_string(needed) + " bytes");
  }
  if (size < needed) {
    return Fail(ACLNN_ERR_PARAM_INVALID, who + "workspaceSize is " + std::to_string(size) +
                                             ", expected at least " + std::to_string(needed));
  }
  if (reinterpret_cast<std::uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    return Fail(ACLNN_ERR_PARAM_INVALID,
                who + "workspace is not aligned to 64 bytes, expected memory of aclrtMalloc");
  }
  return ACLNN_SUCCESS;
}

int PhaseTwo(const char* name, void* workspace, std::uint64_t workspace_size,
             aclOpExecutor* executor, aclrtStream handle) {
  const std::string who = std::string(name) + ": ";
  if (executor == nullptr) {
    return Fail(ACLNN_ERR_PARAM_NULLPTR, who + "executor is null, expected one of phase 1");
  }
  std::shared_ptr<aclOpExecutor> found = Find<aclOpExecutor>(executor);
  if (!found) {
    return Fail(ACLNN_ERR_PARAM_INVALID,
                who + "executor is unknown or consumed, expected a fresh one of phase 1");
  }
  if (found->call != name) {
    return Fail(ACLNN_ERR_PARAM_INVALID, who + "executor belongs to " + found->call +
                                             ", expected one of " + name + "GetWorkspaceSize");
  }
  std::shared_ptr<const Plan> plan;
  std::vector<Range> ranges;
  bool repeatable = false;
  {
    const std::lock_guard<std::mutex> lock(found->mutex);
    if (const int code = PlanForAddresses(who, found.get()); code != 0) return code;
    plan = found->plan;
    ranges.reserve(found->views.size() + 1);
    for (const TensorView& view : found->views) ranges.push_back(RangeOf(view));
    repeatable = found->repeatable;
  }
  if (const int code = CheckWorkspace(who, *plan, workspace, workspace_size); code != 0)
    return code;
  int code = 0;
  const std::shared_ptr<Stream> stream = FindStream(name, handle, &code);
  if (!stream) return code;
  ranges.push_back(RangeOf(workspace, plan->workspace_bytes()));
  auto hold = std::make_shared<const Hold>(std::move(ranges));
  // Of two threads that run a single-use executor at once, one takes it.
  if (!repeatable && !Remove<aclOpExecutor>(executor)) {
    return Fail(ACLNN_ERR_PARAM_INVALID,
                who + "executor is consumed, expected a fresh one of phase 1");
  }
  stream->Enqueue([plan, workspace, workspace_size, hold](const Queue&) {
    const Status status = plan->Run(workspace, workspace_size);
    return Outcome{CodeOf(status.code()), status.message()};
  });
  return ACLNN_SUCCESS;
}

}  // namespace

Context CallContext() { return ContextFace::With(Context::Default(), Face::kC); }

aclnnStatus MakeExecutor(const OpCall& call, std::uint64_t* workspace_size,
                         aclOpExecutor** executor) noexcept {
  return Guarded(call.name, [&] { return PhaseOne(call, workspace_size, executor); });
}

aclnnStatus RunExecutor(const char* name, void* workspace, std::uint64_t workspace_size,
                        aclOpExecutor* executor, aclrtStream stream) noexcept {
  return Guarded(name, [&] { return PhaseTwo(name, workspace, workspace_size, executor, stream); });
}

}  // namespace anabranch::acl
