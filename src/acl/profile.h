// Platform profiles: the machine that ANABRANCH_SOC makes the library pretend to be. Phase 1
// enforces that machine's documented limits, so that what passes here is legal there.
#ifndef ANABRANCH_SRC_ACL_PROFILE_H_
#define ANABRANCH_SRC_ACL_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "aclnn/opdev/op_errno.h"
#include "anabranch/dtype.h"

namespace anabranch::acl {

// What a call asks for, as far as profiles care.
struct Facts {
  const char* op = "";  // the forward's name: "mhc_post"; a backward has the limits of its forward
  std::int64_t n = 0;
  std::int64_t d = 0;
  bool tnd = false;                 // [T, ...] rather than [B, S, ...]
  DType dtype = DType::kUndefined;  // of activations; kUndefined: the operator has none
  bool has_h_res = true;
  bool permutation = false;
  std::int64_t num_iters = 0;  // 0: no such attribute
};

// Limits of one operator on one machine.
struct Limits {
  const char* op;
  bool exists = true;                // otherwise 361001
  std::vector<std::int64_t> n = {};  // allowed n; empty: any
  std::int64_t d_multiple = 1;       // D is a multiple of this, up to d_max
  std::int64_t d_max = INT64_MAX;
  std::vector<std::int64_t> d = {};                 // allowed D; empty: as above
  aclnnStatus size_code = ACLNN_ERR_PARAM_INVALID;  // for n and D
  bool tnd = true;
  bool h_res_required = false;  // null: 361001
  bool permutation = false;
  std::int64_t min_iters = 0;
  std::int64_t max_iters = INT64_MAX;
};

struct Profile {
  const char* name;  // value of ANABRANCH_SOC
  const char* soc;   // aclrtGetSocName
  bool float32;      // FP32 activations allowed
  std::vector<Limits> limits;
};

// The profile that ANABRANCH_SOC names ("native" if unset), or null for an unknown name.
const Profile* FindProfile();

// "call: ANABRANCH_SOC is "x", expected native, a2, a3 or 950".
std::string UnknownProfile(const char* call);

// 0, or a status with *message "got, expected".
aclnnStatus CheckProfile(const Profile& profile, const Facts& facts, std::string* message);

}  // namespace anabranch::acl

#endif  // ANABRANCH_SRC_ACL_PROFILE_H_
