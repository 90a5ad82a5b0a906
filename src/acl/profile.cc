#include "src/acl/profile.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace anabranch::acl {
namespace {

constexpr std::int64_t kPostMaxD = 100000;

// The one table of limits. An operator without a line in a profile has no limits there.
const std::vector<Profile>& Table() {
  static const std::vector<Limits> a2_a3 = {
      {.op = "mhc_pre", .n = {4}, .d_multiple = 128, .d_max = 100000, .permutation = true},
      {.op = "mhc_pre_v2", .exists = false},
      {.op = "mhc_pre_sinkhorn",
       .n = {4},
       .d_multiple = 128,
       .d_max = 100000,
       .tnd = false,
       .min_iters = 20,
       .max_iters = 20},
      {.op = "mhc_sinkhorn", .exists = false},
      {.op = "mhc_post",
       .n = {4},
       .d_multiple = 128,
       .d_max = kPostMaxD,
       .size_code = ACLNN_ERR_INNER_NULLPTR,
       .h_res_required = true},
  };
  static const std::vector<Limits> a950 = {
      {.op = "mhc_pre", .n = {4, 6, 8}, .d_multiple = 64, .d_max = 16384},
      {.op = "mhc_pre_v2", .n = {4, 6, 8}, .d_multiple = 64, .d_max = 16384},
      {.op = "mhc_pre_sinkhorn", .n = {4}, .d = {4096, 7168}, .min_iters = 20, .max_iters = 20},
      {.op = "mhc_sinkhorn", .n = {4, 6, 8}, .min_iters = 1, .max_iters = 100},
      {.op = "mhc_post",
       .n = {4},
       .d_multiple = 128,
       .d_max = kPostMaxD,
       .size_code = ACLNN_ERR_INNER_NULLPTR},
  };
  static const std::vector<Profile> table = {
      {.name = "native", .soc = "Ascend950PR", .float32 = true, .limits = {}},
      {.name = "a2", .soc = "Ascend910B1", .float32 = false, .limits = a2_a3},
      {.name = "a3", .soc = "Ascend910_9392", .float32 = false, .limits = a2_a3},
      {.name = "950", .soc = "Ascend950PR", .float32 = false, .limits = a950},
  };
  return table;
}

std::string ProfileName() {
  const char* name = std::getenv("ANABRANCH_SOC");
  return name == nullptr || *name == '\0' ? "native" : name;
}

std::string List(const std::vector<std::int64_t>& values) {
  std::string text;
  for (std::size_t k = 0; k < values.size(); ++k) {
    if (k > 0) text += k + 1 == values.size() ? " or " : ", ";
    text += std::to_string(values[k]);
  }
  return text;
}

bool Contains(const std::vector<std::int64_t>& values, std::int64_t value) {
  return values.empty() || std::find(values.begin(), values.end(), value) != values.end();
}

aclnnStatus CheckSizes(const Limits& limits, const Facts& facts, std::string* message) {
  if (!Contains(limits.n, facts.n)) {
    *message = "n is " + std::to_string(facts.n) + ", expected " + List(limits.n);
    return limits.size_code;
  }
  if (!limits.d.empty() && !Contains(limits.d, facts.d)) {
    *message = "D is " + std::to_string(facts.d) + ", expected " + List(limits.d);
    return limits.size_code;
  }
  const bool fits = facts.d >= 1 && facts.d <= limits.d_max && facts.d % limits.d_multiple == 0;
  if (limits.d_max != INT64_MAX && !fits) {
    *message = "D is " + std::to_string(facts.d) + ", expected a multiple of " +
               std::to_string(limits.d_multiple) + " up to " + std::to_string(limits.d_max);
    return limits.size_code;
  }
  return ACLNN_SUCCESS;
}

}  // namespace

const Profile* FindProfile() {
  const std::string name = ProfileName();
  for (const Profile& profile : Table()) {
    if (name == profile.name) return &profile;
  }
  return nullptr;
}

std::string UnknownProfile(const char* call) {
  std::string names;
  for (const Profile& profile : Table()) {
    names += std::string(names.empty() ? "" : ", ") + profile.name;
  }
  return std::string(call) + ": ANABRANCH_SOC is \"" + ProfileName() +
         "\", expected one of: " + names;
}

aclnnStatus CheckProfile(const Profile& profile, const Facts& facts, std::string* message) {
  if (facts.dtype == DType::kFloat32 && !profile.float32) {
    *message = "activations are FLOAT, expected FLOAT16 or BF16";
    return ACLNN_ERR_PARAM_INVALID;
  }
  for (const Limits& limits : profile.limits) {
    if (std::strcmp(limits.op, facts.op) != 0) continue;
    if (!limits.exists) {
      *message = "the operator does not exist on this platform";
      return ACLNN_ERR_RUNTIME_ERROR;
    }
    if (const aclnnStatus code = CheckSizes(limits, facts, message); code != 0) return code;
    if (facts.tnd && !limits.tnd) {
      *message = "the layout is [T, ...], expected [B, S, ...]";
      return ACLNN_ERR_PARAM_INVALID;
    }
    if (!facts.has_h_res && limits.h_res_required) {
      *message = "hRes is null, expected a tensor";
      return ACLNN_ERR_RUNTIME_ERROR;
    }
    if (facts.permutation && !limits.permutation) {
      *message = "the permutation form is not supported, expected n x n matrices";
      return ACLNN_ERR_PARAM_INVALID;
    }
    const bool iters = facts.num_iters >= limits.min_iters && facts.num_iters <= limits.max_iters;
    if (facts.num_iters != 0 && !iters) {
      *message = "the number of iterations is " + std::to_string(facts.num_iters) + ", expected " +
                 std::to_string(limits.min_iters) + ".." + std::to_string(limits.max_iters);
      return ACLNN_ERR_PARAM_INVALID;
    }
  }
  return ACLNN_SUCCESS;
}

}  // namespace anabranch::acl
