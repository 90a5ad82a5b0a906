// The command line of the anabranch program, apart from running it, so that tests can do either.
#ifndef ANABRANCH_SRC_TOOLS_REQUEST_H_
#define ANABRANCH_SRC_TOOLS_REQUEST_H_

#include "src/tools/commands.h"

namespace anabranch::tools {

enum class Command { kNone, kInfo, kCheck, kBench, kSupportTable };

struct Request {
  Command command = Command::kNone;  // kNone: --help or --version, answered already
  InfoOptions info;
  CheckOptions check;
  BenchOptions bench;
};

// UsageError if the arguments make no request.
Request ParseRequest(int argc, const char* const* argv);

// The exit code.
int RunRequest(const Request& request);

}  // namespace anabranch::tools

#endif  // ANABRANCH_SRC_TOOLS_REQUEST_H_
