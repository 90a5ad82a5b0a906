// The anabranch program.
#include <cstdio>
#include <exception>

#include "src/tools/request.h"

int main(int argc, char** argv) {
  using anabranch::tools::ParseRequest;
  using anabranch::tools::RunRequest;
  try {
    return RunRequest(ParseRequest(argc, argv));
  } catch (const anabranch::tools::UsageError& error) {
    std::fprintf(stderr, "anabranch: error: %s\n", error.message.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "anabranch: error: %s\n", error.what());
  }
  return 2;
}
