#include "src/acl/message.h"

#include <deque>

#include "acl/acl.h"

namespace anabranch::acl {
namespace {

struct Messages {
  std::deque<std::string> newest_first;
  std::string returned;  // keeps aclGetRecentErrMsg's answer alive
};

Messages& ThisThread() {
  thread_local Messages messages;
  return messages;
}

}  // namespace

int Fail(int code, const std::string& message) noexcept {
  constexpr std::size_t kMost = 64;
  try {
    Messages& messages = ThisThread();
    messages.newest_first.push_front(std::to_string(code) + ": " + message);
    if (messages.newest_first.size() > kMost) messages.newest_first.pop_back();
  } catch (...) {  // no memory for the message: the code still says what happened
  }
  return code;
}

}  // namespace anabranch::acl

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
