// Status: what every fallible call of anabranch returns. No exception crosses the public API.
#ifndef ANABRANCH_STATUS_H_
#define ANABRANCH_STATUS_H_

#include <string>
#include <utility>

#include "anabranch/export.h"

namespace anabranch {

// What went wrong, coarse enough to branch on. The message says the rest.
enum class StatusCode {
  kOk = 0,
  kNullArgument,     // a required argument is absent, or has elements and no address
  kInvalidArgument,  // dtype, rank, shape, attribute or overlap breaks the operator's contract
  kUnsupported,      // legal by the contract, but not on this platform or profile
  kOutOfMemory,      // an allocation failed; nothing was written
  kInternal,         // a fault of anabranch or of the caller's parallel_for
};

// A code and, unless ok, a message "<operator>: <argument> <what it got>, expected <what it
// wants>".
class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

}  // namespace anabranch

#endif  // ANABRANCH_STATUS_H_
