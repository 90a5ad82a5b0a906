#include "tests/acl/catalog_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "aclnnop/aclnn_ops_transformer.h"
#include "anabranch/mhc_options.h"
#include "src/ops/attn_res/entry_reader.h"

namespace anabranch::acl_test {
namespace {

constexpr std::string_view kLists[] = {"blocks", "grad_blocks"};
constexpr double kEps = 1e-6;  // the default of both eps of the mhc operators

aclDataType AclType(DType dtype) {
  if (dtype == DType::kBFloat16) return ACL_BF16;
  return dtype == DType::kFloat16 ? ACL_FLOAT16 : ACL_FLOAT;
}

// "blocks[3]" belongs to "blocks".
bool IsMember(std::string_view name, std::string_view list) {
  return name.size() > list.size() && name.substr(0, list.size()) == list &&
         name[list.size()] == '[';
}

using PhaseOne = int (*)(const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor);
using PhaseTwo = aclnnStatus (*)(void*, std::uint64_t, aclOpExecutor*, aclrtStream);

struct Row {
  const char* entry;
  PhaseOne one;
  PhaseTwo two;
};

const Row kRows[] = {
    {"mhc_pre",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnMhcPreGetWorkspaceSize(
           a.T("x"), a.T("phi"), a.T("alpha"), a.T("bias"), a.T("gamma"), kEps, kEps, a.T("h_in"),
           a.T("h_post"), a.T("h_res"), a.T("inv_rms"), a.T("h_mix"), a.T("h_pre"), size, executor);
     },
     &aclnnMhcPre},
    {"mhc_pre_backward",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnMhcPreBackwardGetWorkspaceSize(
           a.T("x"), a.T("phi"), a.T("alpha"), a.T("grad_h_in"), a.T("grad_h_post"),
           a.T("grad_h_res"), a.T("inv_rms"), a.T("h_mix"), a.T("h_pre"), a.T("h_post"),
           a.T("gamma"), a.T("grad_x_post"), static_cast<float>(kEps), a.T("grad_x"),
           a.T("grad_phi"), a.T("grad_alpha"), a.T("grad_bias"), a.T("grad_gamma"), size, executor);
     },
     &aclnnMhcPreBackward},
    {"mhc_sinkhorn",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnMhcSinkhornGetWorkspaceSize(a.T("logits"), static_cast<float>(kEps),
                                               a.c().num_iters, a.T("h_res"), a.T("norm_out"),
                                               a.T("sum_out"), size, executor);
     },
     &aclnnMhcSinkhorn},
    {"mhc_sinkhorn_backward",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnMhcSinkhornBackwardGetWorkspaceSize(
           a.T("grad_h_res"), a.T("norm_out"), a.T("sum_out"), a.T("grad_logits"), size, executor);
     },
     &aclnnMhcSinkhornBackward},
    {"mhc_permutation",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnMhcPermutationGetWorkspaceSize(a.T("logits"), a.T("h_res"), size, executor);
     },
     &aclnnMhcPermutation},
    {"mhc_permutation_backward",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnMhcPermutationBackwardGetWorkspaceSize(a.T("grad_h_res"), a.T("logits"),
                                                          a.T("grad_logits"), size, executor);
     },
     &aclnnMhcPermutationBackward},
    {"mhc_pre_sinkhorn",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnMhcPreSinkhornGetWorkspaceSize(
           a.T("x"), a.T("phi"), a.T("alpha"), a.T("bias"), a.c().n, a.c().num_iters, kEps, kEps,
           a.Has("sum_out"), a.T("h_in"), a.T("h_post"), a.T("h_res"), a.T("h_pre"), a.T("h_mix"),
           a.T("inv_rms"), a.T("sum_out"), a.T("norm_out"), size, executor);
     },
     &aclnnMhcPreSinkhorn},
    {"mhc_pre_sinkhorn_backward",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnMhcPreSinkhornBackwardGetWorkspaceSize(
           a.T("grad_h_in"), a.T("grad_h_post"), a.T("grad_h_res"), a.T("x"), a.T("phi"),
           a.T("alpha"), a.T("bias"), a.T("h_pre"), a.T("h_mix"), a.T("inv_rms"), a.T("sum_out"),
           a.T("norm_out"), kEps, a.T("grad_x"), a.T("grad_phi"), a.T("grad_alpha"),
           a.T("grad_bias"), size, executor);
     },
     &aclnnMhcPreSinkhornBackward},
    {"mhc_post",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnMhcPostGetWorkspaceSize(a.T("x"), a.T("h_res"), a.T("h_out"), a.T("h_post"),
                                           a.T("y"), size, executor);
     },
     &aclnnMhcPost},
    {"mhc_post_backward",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnMhcPostBackwardGetWorkspaceSize(
           a.T("grad_output"), a.T("x"), a.T("h_res"), a.T("h_out"), a.T("h_post"), a.T("grad_x"),
           a.T("grad_h_res"), a.T("grad_h_out"), a.T("grad_h_post"), size, executor);
     },
     &aclnnMhcPostBackward},
    {"mhc_head",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnMhcHeadGetWorkspaceSize(a.T("x"), a.T("fn"), a.T("base"), a.T("scale"), kEps,
                                           kEps, a.T("y"), a.T("inv_rms"), a.T("h_mix"), a.T("w"),
                                           size, executor);
     },
     &aclnnMhcHead},
    {"mhc_head_backward",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnMhcHeadBackwardGetWorkspaceSize(a.T("grad_y"), a.T("x"), a.T("fn"), a.T("scale"),
                                                   a.T("inv_rms"), a.T("h_mix"), a.T("w"), kEps,
                                                   a.T("grad_x"), a.T("grad_fn"), a.T("grad_base"),
                                                   a.T("grad_scale"), size, executor);
     },
     &aclnnMhcHeadBackward},
    {"block_attn_res",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnBlockAttnResGetWorkspaceSize(
           a.List("blocks"), a.T("proj_weight"), a.T("partial_block"), a.T("rmsnorm_gamma"),
           kEntryScale, kEntryEps, a.norm(), a.T("h"), a.T("rms_cache"), a.T("alpha_cache"), size,
           executor);
     },
     &aclnnBlockAttnRes},
    {"block_attn_res_backward",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnBlockAttnResBackwardGetWorkspaceSize(
           a.T("grad_h"), a.List("blocks"), a.T("proj_weight"), a.T("alpha_cache"),
           a.T("partial_block"), a.T("rmsnorm_gamma"), a.T("rms_cache"), kEntryScale, kEntryEps,
           a.norm(), a.List("grad_blocks"), a.T("grad_partial_block"), a.T("grad_proj_weight"),
           a.T("grad_rmsnorm_gamma"), size, executor);
     },
     &aclnnBlockAttnResBackward},
    {"attn_res_prepare",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnAttnResPrepareGetWorkspaceSize(
           a.List("blocks"), a.T("queries"), a.T("rmsnorm_gamma"), kEntryScale, kEntryEps, a.norm(),
           a.T("o"), a.T("m"), a.T("l"), size, executor);
     },
     &aclnnAttnResPrepare},
    {"attn_res_prepare_backward",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnAttnResPrepareBackwardGetWorkspaceSize(
           a.T("grad_o"), a.T("grad_m"), a.T("grad_l"), a.List("blocks"), a.T("queries"),
           a.T("rmsnorm_gamma"), kEntryScale, kEntryEps, a.norm(), a.List("grad_blocks"),
           a.T("grad_queries"), a.T("grad_rmsnorm_gamma"), size, executor);
     },
     &aclnnAttnResPrepareBackward},
    {"attn_res_merge",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnAttnResMergeGetWorkspaceSize(a.T("o"), a.T("m"), a.T("l"), a.T("v"),
                                                a.T("query"), a.T("rmsnorm_gamma"), kEntryScale,
                                                kEntryEps, a.norm(), a.T("h"), size, executor);
     },
     &aclnnAttnResMerge},
    {"attn_res_merge_backward",
     [](const CatalogCall& a, std::uint64_t* size, aclOpExecutor** executor) {
       return aclnnAttnResMergeBackwardGetWorkspaceSize(
           a.T("grad_h"), a.T("o"), a.T("m"), a.T("l"), a.T("v"), a.T("query"),
           a.T("rmsnorm_gamma"), kEntryScale, kEntryEps, a.norm(), a.T("grad_o"), a.T("grad_m"),
           a.T("grad_l"), a.T("grad_v"), a.T("grad_query"), a.T("grad_rmsnorm_gamma"), size,
           executor);
     },
     &aclnnAttnResMergeBackward},
};

// Where element k of a row-major [.., n] lies when its rows are n rounded up to a multiple of 8.
std::size_t Padded(std::size_t k, std::size_t n) { return k / n * ((n + 7) / 8 * 8) + k % n; }

const Row* FindRow(std::string_view entry) {
  const Row* row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const Row& r) { return entry == r.entry; });
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace

CatalogCall::CatalogCall(const OperatorEntry& entry, const Case& c,
                         const harness::CaseTensors& tensors)
    : entry_(entry), case_(c), tensors_(tensors) {
  norm_ = std::strncmp(entry.variants[static_cast<std::size_t>(c.variant)], "no norm", 7) != 0;
  if (std::string_view(entry.op) != "mhc_sinkhorn") return;
  for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
    const TensorView& view = tensors.buffers[k].view;
    const std::string& name = tensors.specs[k].name;
    if ((name != "norm_out" && name != "sum_out") || !view.defined()) continue;
    // A size that is wrong stays wrong.
    std::int64_t count = view.sizes[view.rank() - 1] + (8 - c.n % 8) % 8;
    for (int i = 0; i + 1 < view.rank(); ++i) count *= view.sizes[i];
    Flat& flat = flat_[name == "norm_out" ? 0 : 1];
    flat.used = true;
    flat.tensor = k;
    flat.values.assign(kStep * static_cast<std::size_t>(count), NAN);
  }
}

void CatalogCall::FlattenCaches() {
  for (Flat& flat : flat_) {
    if (!flat.used || tensors_.specs[flat.tensor].output) continue;
    const TensorView& view = tensors_.buffers[flat.tensor].view;
    const bool norm = &flat == &flat_[0];
    const auto slot = static_cast<std::size_t>(view.numel() / view.sizes[0]);
    std::size_t k = 0;
    const auto take = [&](std::byte* p) {
      auto value = static_cast<float>(harness::ReadElement(p, view.dtype));
      if (norm && k < slot) {
        // The softmax with eps there and without here, so that each gives the other.
        const auto eps = static_cast<float>(kEps);
        value -= eps;
        const float sum = value + eps;
        value = sum - eps;
        harness::WriteElement(p, view.dtype, static_cast<double>(sum));
      }
      flat.values[kStep * Padded(k++, static_cast<std::size_t>(case_.n))] = value;
    };
    harness::ForEachElement(view, std::ref(take));  // by reference: nothing is allocated
  }
}

void CatalogCall::UnflattenCaches() {
  for (const Flat& flat : flat_) {
    if (!flat.used || !tensors_.specs[flat.tensor].output) continue;
    const TensorView& view = tensors_.buffers[flat.tensor].view;
    const bool norm = &flat == &flat_[0];
    const auto slot = static_cast<std::size_t>(view.numel() / view.sizes[0]);
    std::size_t k = 0;
    const auto give = [&](std::byte* p) {
      float value = flat.values[kStep * Padded(k, static_cast<std::size_t>(case_.n))];
      if (norm && k < slot) value += static_cast<float>(kEps);
      ++k;
      harness::WriteElement(p, view.dtype, static_cast<double>(value));
    };
    harness::ForEachElement(view, std::ref(give));
  }
}

std::vector<std::string> CatalogCall::Names() {
  std::vector<std::string> names;
  for (const OperatorEntry& entry : Operators()) {
    names.emplace_back(entry.name);
  }
  return names;
}

bool CatalogCall::Exists(const OperatorEntry& entry, const Case& c) { return InC(entry, c); }

Case CatalogCall::FirstForm(const OperatorEntry& entry, Case c) {
  while (!entry.supports(c) || !Exists(entry, c)) ++c.variant;
  return c;
}

bool CatalogCall::Has(std::string_view name) const {
  return std::any_of(tensors_.specs.begin(), tensors_.specs.end(),
                     [&](const TensorSpec& spec) { return spec.name == name; });
}

aclTensor* CatalogCall::T(std::string_view name) const {
  for (std::size_t k = 0; k < tensors_.specs.size(); ++k) {
    if (tensors_.specs[k].name == name) return handles_[k];
  }
  return nullptr;
}

const aclTensorList* CatalogCall::List(std::string_view name) const {
  return lists_[name == kLists[0] ? 0 : 1];
}

CatalogCall::Flat* CatalogCall::FlatOf(std::size_t tensor) {
  for (Flat& flat : flat_) {
    if (flat.used && flat.tensor == tensor) return &flat;
  }
  return nullptr;
}

int CatalogCall::CreateTensors() {
  for (std::size_t k = 0; k < tensors_.specs.size(); ++k) {
    const TensorView& view = tensors_.buffers[k].view;
    if (!view.defined()) continue;
    if (Flat* flat = FlatOf(k)) {
      const auto all = static_cast<std::int64_t>(flat->values.size());
      const std::int64_t size = all / kStep;
      const std::int64_t stride = kStep;
      handles_[k] = aclCreateTensor(&size, 1, ACL_FLOAT, &stride, 0, ACL_FORMAT_ND, &all, 1,
                                    flat->values.data());
      if (handles_[k] == nullptr) return 1;
      continue;
    }
    std::int64_t span = view.numel() > 0 ? 1 : 0;
    for (int i = 0; span > 0 && i < view.rank(); ++i) {
      span += (view.sizes[i] - 1) * view.strides[i];
    }
    handles_[k] = aclCreateTensor(view.sizes.begin(), static_cast<std::uint64_t>(view.rank()),
                                  AclType(view.dtype), view.strides.begin(), 0, ACL_FORMAT_ND,
                                  &span, 1, view.data);
    if (handles_[k] == nullptr) return 1;
  }
  return 0;
}

int CatalogCall::CreateLists() {
  for (std::size_t list = 0; list < lists_.size(); ++list) {
    std::array<const aclTensor*, kMost> members = {};
    std::uint64_t count = 0;
    for (std::size_t k = 0; k < tensors_.specs.size(); ++k) {
      if (IsMember(tensors_.specs[k].name, kLists[list])) members[count++] = handles_[k];
    }
    if (count == 0) continue;
    lists_[list] = aclCreateTensorList(members.data(), count);
    if (lists_[list] == nullptr) return 1;
  }
  return 0;
}

int CatalogCall::Prepare() {
  if (const int code = CreateTensors(); code != 0) return code;
  if (const int code = CreateLists(); code != 0) return code;
  const int code = FindRow(entry_.name)->one(*this, &workspace_size_, &executor_);
  if (code != 0 || workspace_size_ == 0) return code;
  return aclrtMalloc(&workspace_, workspace_size_, ACL_MEM_MALLOC_HUGE_FIRST);
}

int CatalogCall::Execute(aclrtStream stream) {
  const Row& row = *FindRow(entry_.name);
  FlattenCaches();
  if (const int code = row.two(workspace_, workspace_size_, executor_, stream); code != 0) {
    return code;
  }
  if (!repeatable_) executor_ = nullptr;
  const int code = aclrtSynchronizeStream(stream);
  UnflattenCaches();
  return code;
}

void CatalogCall::End() {
  for (aclTensorList*& list : lists_) {
    if (list != nullptr) aclDestroyTensorList(list);  // with its members
    list = nullptr;
  }
  for (aclTensor*& handle : handles_) {
    if (handle != nullptr) aclDestroyTensor(handle);
    handle = nullptr;
  }
  // An executor that phase 2 has not taken.
  if (executor_ != nullptr) aclDestroyAclOpExecutor(executor_);
  executor_ = nullptr;
  if (workspace_ != nullptr) aclrtFree(workspace_);
  workspace_ = nullptr;
}

}  // namespace anabranch::acl_test
