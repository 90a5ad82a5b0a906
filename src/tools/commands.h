// The commands of the anabranch program. Each returns the exit code: 0 fine, 1 a check failed,
// 2 the request was wrong (one line on stderr).
#ifndef ANABRANCH_SRC_TOOLS_COMMANDS_H_
#define ANABRANCH_SRC_TOOLS_COMMANDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "anabranch/context.h"
#include "src/ops/catalog.h"
#include "src/tools/harness/tensors.h"

namespace anabranch::tools {

// A wrong request: main prints "anabranch: error: ..." and exits with 2.
struct UsageError {
  std::string message;
};

struct InfoOptions {
  bool json = false;
};
int Info(const InfoOptions& options);

// Markdown table of all operators, as docs/support.md has it.
int SupportTable();

struct CheckOptions {
  std::vector<std::string> ops;  // empty: all
  std::uint64_t seed = 1;
  std::int64_t cases = 300;  // an operator pass
  std::int64_t only = -1;    // this case alone
  double seconds = 0;        // > 0: as many cases as fit, an operator pass
  std::string target;        // empty: all that run here, or ANABRANCH_TARGET's
  int threads = 0;           // 0: random
  bool digest = false;       // hashes of the bits of fixed calls, no checks
  std::string write_cases;   // a folder: calls and their results as files, no checks
};
int Check(const CheckOptions& options);

// What case `k` is made of: depends on the seed, the operator's name and k only, so that it can be
// run alone.
harness::Random CaseRandom(const OperatorEntry& entry, std::uint64_t seed, std::int64_t k);

// Writes cases.json and data.bin, which docs/differential.md describes.
int WriteCases(const std::vector<const OperatorEntry*>& entries, const CheckOptions& options);

struct BenchOptions {
  std::vector<std::string> ops;     // empty: all
  std::vector<std::string> shapes;  // "T=4096,D=4096,n=4"; empty: each operator's own
  std::string dtype = "bf16";
  std::string pass = "both";
  std::string target;
  int threads = 0;  // 0: all
  int repeat = 15;
  double min_time = 0;  // seconds; repeats go on until they have taken this long
  bool quick = false;
  bool plan = false;
  std::string json;
};
int Bench(const BenchOptions& options);

// Operators named by a user: "mhc_post" stands for both passes. UsageError lists the known ones.
std::vector<const OperatorEntry*> SelectOperators(const std::vector<std::string>& names,
                                                  const std::string& pass = "both");

// The target of a call that names none: the best one, or ANABRANCH_TARGET's. UsageError if that is
// unknown or not supported. `why`, if not null, receives the reason.
Target DefaultTarget(std::string* why = nullptr);

// A target by name; kAuto for "". UsageError if unknown or not supported.
Target SelectTarget(const std::string& name);

}  // namespace anabranch::tools

#endif  // ANABRANCH_SRC_TOOLS_COMMANDS_H_
