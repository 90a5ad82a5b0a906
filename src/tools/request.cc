// What the command line asks for.
#include "src/tools/request.h"

#include <CLI/CLI.hpp>

namespace anabranch::tools {
namespace {

// A year: more would only be a slip of the keyboard. Not a number compares with nothing, and what
// goes on "until so many seconds have passed" would go on for ever.
constexpr double kMostSeconds = 366.0 * 24 * 3600;
std::string CheckSeconds(const std::string& text) {
  double seconds = 0;
  if (CLI::detail::lexical_cast(text, seconds) && seconds >= 0 && seconds <= kMostSeconds) {
    return {};
  }
  return text + " is not a number of seconds, expected 0 .. " +
         std::to_string(static_cast<long>(kMostSeconds));
}

constexpr char kCheckExamples[] =
    "\nExamples:\n"
    "  anabranch check                              every operator, every target\n"
    "  anabranch check mhc_post --cases 2000        more cases of one\n"
    "  anabranch check mhc_post --seed 7 --case 31  one case again\n";

constexpr char kBenchExamples[] =
    "\nExamples:\n"
    "  anabranch bench                                        every operator at its own shapes\n"
    "  anabranch bench mhc_post --shape T=4096,D=4096,n=4 --dtype bf16 --threads 2 --json "
    "out.json\n"
    "  anabranch bench --plan --threads 64                    how the work would be cut\n";

void AddCheck(CLI::App& app, CheckOptions* o) {
  CLI::App* check =
      app.add_subcommand("check", "Random awkward calls of operators against their definition");
  check->add_option("op", o->ops, "Operators (default: all)");
  check->add_option("--seed", o->seed, "Seed of the random cases")->capture_default_str();
  check->add_option("--cases", o->cases, "Cases an operator pass")->capture_default_str();
  check->add_option("--case", o->only, "Run this case alone")->check(CLI::NonNegativeNumber);
  check->add_option("--seconds", o->seconds, "As many cases as fit, an operator pass")
      ->check(CheckSeconds);
  check->add_option("--target", o->target,
                    "One SIMD target (default: ANABRANCH_TARGET, or all that run here)");
  check->add_option("--threads", o->threads, "Threads (default: random)");
  check->add_flag("--digest", o->digest,
                  "Print hashes of the bits of a fixed series of calls, to compare machines");
  check->add_option("--write-cases", o->write_cases,
                    "Write calls and their results into this folder instead of checking");
  check->footer(kCheckExamples);
}

void AddBench(CLI::App& app, BenchOptions* o) {
  CLI::App* bench = app.add_subcommand("bench", "Speed against the roofs of this machine");
  bench->add_option("op", o->ops, "Operators (default: all)");
  bench->add_option("--shape", o->shapes, "T=4096,D=4096,n=4,L=9; may be repeated");
  bench->add_option("--dtype", o->dtype, "bf16, fp16 or fp32")->capture_default_str();
  bench->add_option("--pass", o->pass, "forward, backward or both")->capture_default_str();
  bench->add_option("--target", o->target, "SIMD target (default: the best one)");
  bench->add_option("--threads", o->threads, "Threads (default: all)");
  bench->add_option("--repeat", o->repeat, "Measurements, of which the median counts")
      ->capture_default_str();
  bench->add_option("--min-time", o->min_time, "Go on measuring for so many seconds a line")
      ->check(CheckSeconds);
  bench->add_flag("--quick", o->quick, "Smaller shapes, fewer repeats");
  bench->add_flag("--plan", o->plan, "Show how the work is cut, run nothing");
  bench->add_option("--json", o->json, "Also write the results to this file");
  bench->footer(kBenchExamples);
}

}  // namespace

Request ParseRequest(int argc, const char* const* argv) {
  CLI::App app("Fused residual-stream operators for Transformers: facts, checks, benchmarks",
               "anabranch");
  app.require_subcommand(1);
  app.set_version_flag("--version", ANABRANCH_VERSION);
  app.footer("\nanabranch COMMAND --help tells more, with examples.");
  Request request;
  CLI::App* info_command = app.add_subcommand("info", "Targets, caches, threads, operators");
  info_command->add_flag("--json", request.info.json, "As JSON");
  info_command->footer("\nExample:\n  anabranch info --json");
  AddCheck(app, &request.check);
  AddBench(app, &request.bench);
  app.add_subcommand("support-table", "Markdown table of the operators, for the docs");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw UsageError{error.what()};
    app.exit(error);  // --help, --version
    return request;
  }
  request.command = Command::kSupportTable;
  if (app.got_subcommand("info")) request.command = Command::kInfo;
  if (app.got_subcommand("check")) request.command = Command::kCheck;
  if (app.got_subcommand("bench")) request.command = Command::kBench;
  return request;
}

int RunRequest(const Request& request) {
  switch (request.command) {
    case Command::kNone:
      return 0;
    case Command::kInfo:
      return Info(request.info);
    case Command::kCheck:
      return Check(request.check);
    case Command::kBench:
      return Bench(request.bench);
    case Command::kSupportTable:
      return SupportTable();
  }
  return 2;
}

}  // namespace anabranch::tools
