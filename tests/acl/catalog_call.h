// Calls the aclnn operator of a table entry with the tensors of a case: what the tests of all
// operators through the C face share. Nothing here allocates between Begin and End.
#ifndef ANABRANCH_TESTS_ACL_CATALOG_CALL_H_
#define ANABRANCH_TESTS_ACL_CATALOG_CALL_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "aclnn/aclnn_base.h"
#include "src/tools/harness/harness.h"

namespace anabranch::acl_test {

// One call from its tensors to its end. Every step stops at the first error; End destroys what
// there is, in any state.
class CatalogCall {
 public:
  CatalogCall(const OperatorEntry& entry, const Case& c, const harness::CaseTensors& tensors);
  ~CatalogCall() { End(); }
  CatalogCall(const CatalogCall&) = delete;
  CatalogCall& operator=(const CatalogCall&) = delete;

  // Passes that the C face has: all.
  static std::vector<std::string> Names();

  // The C face has this form of the operator (it has no clamp, for example).
  static bool Exists(const OperatorEntry& entry, const Case& c);
  // `c` in the first form from its own on that exists.
  static Case FirstForm(const OperatorEntry& entry, Case c);

  // 0 or the first error's code.
  int Prepare();                    // tensors, lists, phase 1, the workspace
  int Execute(aclrtStream stream);  // phase 2 and the wait
  int Run(aclrtStream stream) {     // both
    const int code = Prepare();
    return code != 0 ? code : Execute(stream);
  }
  // What was prepared may be executed more than once.
  int MakeRepeatable() {
    repeatable_ = true;
    return aclSetAclOpExecutorRepeatable(executor_);
  }
  void End();
  aclOpExecutor* executor() const { return executor_; }
  std::uint64_t workspace_size() const { return workspace_size_; }
  bool KeepsCaches() const { return flat_[0].used; }  // in flat rows of its own

  // For the table of calls: the tensor of that name or null, the list of names "name[0]", ...
  aclTensor* T(std::string_view name) const;
  const aclTensorList* List(std::string_view name) const;
  bool Has(std::string_view name) const;  // the form has it, whether it is given or left out
  const Case& c() const { return case_; }
  bool norm() const { return norm_; }

 private:
  static constexpr std::size_t kMost = 320;  // tensors of a call
  static constexpr std::size_t kStep = 2;    // elements from one to the next in flat caches
  // The caches of aclnnMhcSinkhorn: one flat, padded row of values for a tensor of the case, with
  // NaN between and behind the values.
  struct Flat {
    bool used = false;
    std::size_t tensor = 0;
    std::vector<float> values = {};
  };
  int CreateTensors();
  int CreateLists();
  Flat* FlatOf(std::size_t tensor);  // null: the call takes it as it is
  void FlattenCaches();              // inputs, before phase 2
  void UnflattenCaches();            // outputs, after it

  const OperatorEntry& entry_;
  const Case& case_;
  const harness::CaseTensors& tensors_;
  bool norm_ = true;
  std::array<Flat, 2> flat_ = {};  // norm_out, sum_out
  std::array<aclTensor*, kMost> handles_ = {};
  std::array<aclTensorList*, 2> lists_ = {};  // blocks, grad_blocks
  aclOpExecutor* executor_ = nullptr;
  bool repeatable_ = false;
  std::uint64_t workspace_size_ = 0;
  void* workspace_ = nullptr;
};

}  // namespace anabranch::acl_test

#endif  // ANABRANCH_TESTS_ACL_CATALOG_CALL_H_
