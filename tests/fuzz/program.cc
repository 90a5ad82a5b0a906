// The command line of the anabranch program. Arguments are words of the program and pieces of
// text; what is asked for is run with bounded sizes, and its JSON is parsed. A wrong request must
// be a UsageError with text.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/tools/request.h"
#include "tests/fuzz/input.h"

namespace anabranch::fuzz {
namespace {

// What the program prints goes nowhere, except when it is JSON to be read.
class Output {
 public:
  Output() {
    std::fflush(stdout);
    before_ = dup(1);
    char name[] = "/tmp/anabranch-fuzz-XXXXXX";
    file_ = mkstemp(name);
    if (before_ < 0 || file_ < 0) Broken("no temporary file");
    unlink(name);
  }
  ~Output() {
    close(file_);
    close(before_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void Begin() {
    if (ftruncate(file_, 0) != 0 || lseek(file_, 0, SEEK_SET) != 0) Broken("temporary file");
    std::fflush(stdout);
    dup2(file_, 1);
  }
  std::string End() {
    std::fflush(stdout);
    dup2(before_, 1);
    const off_t size = lseek(file_, 0, SEEK_END);
    std::string text(static_cast<std::size_t>(size), '\0');
    if (pread(file_, text.data(), text.size(), 0) != size) Broken("temporary file");
    return text;
  }

 private:
  int before_ = -1;
  int file_ = -1;
};

std::string Word(Input* in) {
  static const char* const kWords[] = {"bench",
                                       "check",
                                       "info",
                                       "support-table",
                                       "--json",
                                       "--plan",
                                       "--quick",
                                       "--shape",
                                       "--dtype",
                                       "--pass",
                                       "--target",
                                       "--threads",
                                       "--repeat",
                                       "--min-time",
                                       "--seed",
                                       "--cases",
                                       "--case",
                                       "--seconds",
                                       "--help",
                                       "--version",
                                       "mhc_post",
                                       "mhc_pre",
                                       "mhc_head",
                                       "mhc_sinkhorn",
                                       "mhc_pre_sinkhorn",
                                       "mhc_permutation",
                                       "block_attn_res",
                                       "attn_res_prepare",
                                       "attn_res_merge",
                                       "mhc_post_backward",
                                       "forward",
                                       "backward",
                                       "both",
                                       "bf16",
                                       "fp16",
                                       "fp32",
                                       "avx2",
                                       "emu128",
                                       "avx512",
                                       "0",
                                       "1",
                                       "2",
                                       "-1",
                                       "1e9",
                                       "nan",
                                       "inf",
                                       "99999999999999999999",
                                       "T=4,D=8,n=2",
                                       "T=1,D=16",
                                       "n=4",
                                       "L=3",
                                       "T=9223372036854775807,D=9223372036854775807",
                                       "T=1,D=1,n=99",
                                       "variant=1",
                                       "iters=3",
                                       "T=",
                                       "=",
                                       ",",
                                       "",
                                       "--",
                                       "-",
                                       "--json="};
  if (!in->Chance(40)) return in->Pick(kWords);
  static const char* const kKeys[] = {"T", "D", "n", "L", "iters", "variant", "x"};
  std::string text;
  switch (in->Below(3)) {
    case 0:
      for (int k = 1 + in->Below(4); k > 0; --k) {
        text += (text.empty() ? "" : ",") + std::string(in->Pick(kKeys));
        text += "=" + std::to_string(in->Wide());
      }
      return text;
    case 1:
      return std::to_string(in->Wide());
    default:
      for (int k = in->Below(12); k > 0; --k)
        text += static_cast<char>(std::max(1, in->Below(256)));
      return text;
  }
}

// The request as the user gave it, made small enough to be run thousands of times.
void Bound(tools::Request* request, Input* in) {
  tools::CheckOptions& check = request->check;
  check.cases = std::min<std::int64_t>(check.cases, 1);
  check.seconds = std::min(check.seconds, 0.0);
  check.threads = std::min(check.threads, 64);
  if (check.ops.empty()) check.ops = {"mhc_permutation"};
  if (check.ops.size() > 2) check.ops.resize(2);
  tools::BenchOptions& bench = request->bench;
  bench.threads = std::min(bench.threads, 1 << 20);
  bench.min_time = std::min(bench.min_time, 0.0);
  bench.repeat = std::min(bench.repeat, 1);
  if (bench.shapes.size() > 2) bench.shapes.resize(2);
  if (bench.plan) return;
  // Measuring takes milliseconds: seldom, and never large.
  if (!in->Chance(4)) {
    bench.plan = true;
    return;
  }
  bench.ops = {"mhc_permutation"};
  bench.pass = "forward";
  bench.shapes = {"T=4,n=2"};
  bench.threads = 1;
}

void CheckJson(const std::string& text, const std::vector<const char*>& keys) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) Broken("not JSON: " + text);
  const nlohmann::json& object = json.is_array() ? json.at(0) : json;
  for (const char* key : keys) {
    if (!object.contains(key)) Broken(std::string("JSON without ") + key);
  }
}

std::string Slurp(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void Run(tools::Request* request, Output* output, Input* in) {
  static const std::string path = "/tmp/anabranch-fuzz-" + std::to_string(getpid()) + ".json";
  Bound(request, in);
  std::string& json = request->bench.json;
  const bool writes = !json.empty() && request->command == tools::Command::kBench;
  if (writes) json = path;  // never a path that the fuzzer makes up
  output->Begin();
  ++calls;
  int code = 0;
  try {
    code = tools::RunRequest(*request);
  } catch (...) {
    output->End();
    throw;
  }
  const std::string text = output->End();
  if (code != 0)
    Broken("exit code " + std::to_string(code) + " of a request that was run: " + text);
  if (request->command == tools::Command::kInfo && request->info.json) {
    CheckJson(text, {"version", "cpu", "targets", "operators"});
  }
  if (!writes || request->bench.plan) return;
  CheckJson(Slurp(path),
            {"op", "pass", "T", "D", "n", "L", "dtype", "threads", "target", "seconds_median",
             "seconds_min", "bytes", "flops", "roof", "roof_value", "fraction"});
  unlink(path.c_str());
}

void OneLine(Input* in, Output* output) {
  static const char* const kCommands[] = {"bench", "check", "info", "support-table"};
  std::vector<std::string> words = {"anabranch"};
  if (!in->Chance(16)) words.emplace_back(in->Pick(kCommands));
  for (int k = in->Below(8); k > 0; --k) words.push_back(Word(in));
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  ++calls;
  try {
    output->Begin();
    tools::Request request;
    try {
      request = tools::ParseRequest(static_cast<int>(arguments.size()), arguments.data());
    } catch (...) {
      output->End();
      throw;
    }
    output->End();
    Run(&request, output, in);
  } catch (const tools::UsageError& error) {
    if (error.message.empty()) Broken("a usage error without text");
  }
}

}  // namespace
}  // namespace anabranch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anabranch::fuzz;  // NOLINT(google-build-using-namespace)
  CountCalls("program");
  static Output* const output = new Output;
  Input in(data, size);
  OneLine(&in, output);
  return 0;
}
