// What aclGetRecentErrMsg returns: this thread's messages, newest first.
#ifndef ANABRANCH_SRC_ACL_MESSAGE_H_
#define ANABRANCH_SRC_ACL_MESSAGE_H_

#include <new>
#include <string>

#include "acl/acl_base.h"

namespace anabranch::acl {

// Keeps the message for this thread (the newest 64 at most) and returns the code.
int Fail(int code, const std::string& message) noexcept;

// Runs the body of a C call: no exception leaves it. `call` names it in messages.
template <class Body>
int Guarded(const char* call, const Body& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Fail(ACL_ERROR_BAD_ALLOC, std::string(call) + ": host memory is exhausted");
  } catch (...) {
    return Fail(ACL_ERROR_INTERNAL_ERROR, std::string(call) + ": unexpected internal error");
  }
}

}  // namespace anabranch::acl

#endif  // ANABRANCH_SRC_ACL_MESSAGE_H_
