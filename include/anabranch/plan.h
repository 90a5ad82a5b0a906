// Plan: a checked and sized call, ready to run. Prepare functions make one; see mhc.h, attn_res.h.
#ifndef ANABRANCH_PLAN_H_
#define ANABRANCH_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "anabranch/context.h"
#include "anabranch/export.h"
#include "anabranch/status.h"

namespace anabranch {

// What was decided for a call; all of it is in Plan::Describe() too. Texts are literals.
struct PlanInfo {
  const char* op = "";            // "mhc_post"
  std::string_view kernel;        // which code runs: "n4", "generic", "reference", "empty"
  Target target = Target::kAuto;  // kAuto for the double-precision reference
  std::string_view why;           // why this target and kernel
  int threads = 1;                // tasks that run side by side
  std::int64_t work_items = 0;    // units handed out to the tasks
  std::int64_t tile = 0;          // tokens (or elements, see kernel) of one unit
  bool streaming = false;         // non-temporal stores
  std::size_t workspace_bytes = 0;
};

class PlanImpl;

// Movable handle. Run may be called any number of times and from several threads at once as long
// as each call has its own workspace and its outputs do not overlap another call's.
class ANABRANCH_EXPORT Plan {
 public:
  Plan();
  ~Plan();
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  explicit Plan(std::unique_ptr<PlanImpl> impl);

  bool valid() const { return impl_ != nullptr; }

  // Scratch memory that Run needs, in bytes; often 0. Bounded independently of the token count
  // unless the operator's page says otherwise.
  std::size_t workspace_bytes() const;

  // Computes. Allocates nothing. `workspace` is 64-byte aligned and at least workspace_bytes()
  // long (null if that is 0); its contents are neither read nor kept. Uses at most as many threads
  // as the context given to Prepare had. Errors: kInvalidArgument (empty plan, workspace too
  // small or misaligned), kInternal (the caller's parallel_for threw); outputs are then undefined
  // only in the latter case.
  Status Run(void* workspace, std::size_t workspace_bytes,
             const Context& context = Context::Default()) const;

  // Allocates the workspace, runs, frees it. kOutOfMemory if that fails.
  Status Run(const Context& context = Context::Default()) const;

  const PlanInfo& info() const;
  std::string Shapes() const;    // "x=(1, 8, 4, 64) bfloat16 ..."
  std::string Describe() const;  // several lines for people

 private:
  std::unique_ptr<PlanImpl> impl_;
};

}  // namespace anabranch

#endif  // ANABRANCH_PLAN_H_
