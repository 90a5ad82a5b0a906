#include "src/acl/message.h"

#include <deque>
#include <new>

#include "acl/acl.h"
#include "acl/acl_rt.h"

namespace anabranch::acl {
namespace {

struct Messages {
  int last_code = 0;  // what aclrtGetLastError tells
  std::deque<std::string> newest_first;
  std::string returned;  // keeps aclGetRecentErrMsg's answer alive
};

Messages& ThisThread() {
  thread_local Messages messages;
  return messages;
}

}  // namespace

int Fail(int code, const std::string& message) noexcept { return Fail(code, message.c_str()); }

int Fail(int code, const char* message) noexcept {
  constexpr std::size_t kMost = 64;
  try {
    Messages& messages = ThisThread();
    messages.last_code = code;
    messages.newest_first.push_front(std::to_string(code) + ": " + message);
    if (messages.newest_first.size() > kMost) messages.newest_first.pop_back();
  } catch (...) {  // no memory for the message: the code still says what happened
  }
  return code;
}

int Caught(const char* call) noexcept {
  bool memory = false;
  try {
    throw;
  } catch (const std::bad_alloc&) {
    memory = true;
  } catch (...) {
  }
  const int code = memory ? ACL_ERROR_BAD_ALLOC : ACL_ERROR_INTERNAL_ERROR;
  const char* what = memory ? ": host memory is exhausted" : ": unexpected internal error";
  try {
    return Fail(code, std::string(call) + what);
  } catch (...) {
    return Fail(code, what);
  }
}

namespace {

aclError LastError(const char* call, aclrtLastErrLevel level, bool forget) {
  if (level != ACL_RT_THREAD_LEVEL) {
    return Fail(ACL_ERROR_INVALID_PARAM, std::string(call) + ": level is " +
                                             std::to_string(static_cast<int>(level)) +
                                             ", expected ACL_RT_THREAD_LEVEL");
  }
  Messages& messages = ThisThread();
  const int code = messages.last_code;
  if (forget) messages.last_code = 0;
  return code;
}

}  // namespace
}  // namespace anabranch::acl

extern "C" aclError aclrtGetLastError(aclrtLastErrLevel level) {
  return anabranch::acl::Guarded("aclrtGetLastError", [&] {
    return anabranch::acl::LastError("aclrtGetLastError", level, true);
  });
}

extern "C" aclError aclrtPeekAtLastError(aclrtLastErrLevel level) {
  return anabranch::acl::Guarded("aclrtPeekAtLastError", [&] {
    return anabranch::acl::LastError("aclrtPeekAtLastError", level, false);
  });
}

extern "C" const char* aclGetRecentErrMsg() {
  try {
    anabranch::acl::Messages& messages = anabranch::acl::ThisThread();
    messages.returned.clear();
    for (const std::string& message : messages.newest_first) messages.returned += message + "\n";
    messages.newest_first.clear();
    return messages.returned.c_str();
  } catch (...) {
    return "";
  }
}
