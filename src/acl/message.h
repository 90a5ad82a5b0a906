// What aclGetRecentErrMsg returns: this thread's messages, newest first.
#ifndef ANABRANCH_SRC_ACL_MESSAGE_H_
#define ANABRANCH_SRC_ACL_MESSAGE_H_

#include <string>

namespace anabranch::acl {

// Keeps the message for this thread (the newest 64 at most) and returns the code.
int Fail(int code, const std::string& message) noexcept;

// The same for a text that may not be turned into a string where there is no memory for it.
int Fail(int code, const char* message) noexcept;

// In a handler: the message and code of the exception that was caught. `call` names the C call.
int Caught(const char* call) noexcept;

// Runs the body of a C call: no exception leaves it.
template <class Body>
int Guarded(const char* call, const Body& body) noexcept {
  try {
    return body();
  } catch (...) {
    return Caught(call);
  }
}

}  // namespace anabranch::acl

#endif  // ANABRANCH_SRC_ACL_MESSAGE_H_
