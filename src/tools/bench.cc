// `anabranch bench`: operators against roofs that are measured in turn with them, so that noise
// hits both sides alike.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>

#include "src/core/parallel.h"
#include "src/tools/bench_cases.h"
#include "src/tools/commands.h"
#include "src/tools/harness/tensors.h"
#include "src/tools/output_file.h"
#include "src/tools/progress.h"
#include "src/tools/roofs.h"

namespace anabranch::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct Free {
  void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t(64)); }
};
using Memory = std::unique_ptr<std::byte, Free>;

Memory NewMemory(double bytes) {
  void* p = nullptr;
  if (bytes < 1e15) {
    p = ::operator new(static_cast<std::size_t>(bytes) + 4096, std::align_val_t(64), std::nothrow);
  }
  if (p == nullptr) {
    throw UsageError{"no memory for " + std::to_string(bytes / 1e9) +
                     " GB of benchmark tensors, expected a smaller shape"};
  }
  return Memory(static_cast<std::byte*>(p));
}

// Repeats 64 Ki random values over a tensor: fast, and neither zeros nor subnormals.
Memory NewTensor(const TensorSpec& spec, harness::Random& random) {
  const std::size_t element = DTypeSize(spec.dtype);
  const double bytes = static_cast<double>(std::max<std::int64_t>(NumElements(spec.sizes), 0)) *
                       static_cast<double>(element);
  Memory memory = NewMemory(bytes);
  const auto total = static_cast<std::size_t>(bytes);
  const std::size_t pattern = std::min<std::size_t>(total, 65536 * element);
  for (std::size_t k = 0; k < pattern; k += element) {
    harness::WriteElement(memory.get() + k, spec.dtype, spec.mean + spec.scale * random.Normal());
  }
  for (std::size_t k = pattern; k < total; k += pattern) {
    std::memcpy(memory.get() + k, memory.get(), std::min(pattern, total - k));
  }
  return memory;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Result {
  std::string roof;
  std::string roof_code;  // which of the roof's codes was the fastest
  double roof_value = 0;  // bytes or flops a second
  std::vector<double> seconds;
};

// Times `call` often enough to fill a millisecond; seconds a call.
template <class Call>
double TimeCall(const Call& call, int inner) {
  const auto start = Clock::now();
  for (int i = 0; i < inner; ++i) call();
  return std::chrono::duration<double>(Clock::now() - start).count() / inner;
}

class CaseBench {
 public:
  CaseBench(const OperatorEntry& entry, const Case& c, const Context& context)
      : entry_(entry), case_(c), context_(context) {
    harness::Random random(1);
    std::vector<TensorView> views;
    RefuseTooLarge();
    for (const TensorSpec& spec : entry.tensors(c)) {
      memory_.push_back(NewTensor(spec, random));
      views.emplace_back(memory_.back().get(), spec.dtype, spec.sizes);
    }
    Check(entry.prepare(c, views, &plan_, context));
    cost_ = entry.cost(c);  // after Prepare: its products of sizes are known to fit
    workspace_ = NewMemory(static_cast<double>(plan_.workspace_bytes()));
    if (cost_.roof == Cost::Roof::kStream) {
      in_ = NewMemory(cost_.stream_bytes * cost_.reads);
      out_ = NewMemory(cost_.stream_bytes * cost_.writes);
      std::memset(in_.get(), 1, static_cast<std::size_t>(cost_.stream_bytes * cost_.reads));
      std::memset(out_.get(), 1, static_cast<std::size_t>(cost_.stream_bytes * cost_.writes));
    }
  }

  const PlanInfo& info() const { return plan_.info(); }
  int threads() const { return context_.threads(); }
  const Cost& cost() const { return cost_; }

  // At least `repeat` measurements, and as many more as fit into `min_time` seconds.
  Result Measure(int repeat, double min_time, Progress* progress, double done, double share) {
    const auto run = [this] {
      Check(plan_.Run(workspace_.get(), plan_.workspace_bytes(), context_));
    };
    run();
    const double once = TimeCall(run, 1);
    const int inner = std::clamp(static_cast<int>(1e-3 / std::max(once, 1e-9)), 1, 10000);
    Result result;
    std::vector<std::vector<double>> roofs(std::size(kStreamVariants));
    const auto start = Clock::now();
    for (int r = 0;; ++r) {
      const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
      const double fraction =
          std::min(static_cast<double>(r) / repeat, min_time > 0 ? elapsed / min_time : 1.0);
      if (r >= repeat && elapsed >= min_time) break;
      progress->Update(done + share * std::min(fraction, 1.0), entry_.name);
      // Untimed: each of the roof's codes finds the caches as the one before it left them, on the
      // same tensors; so does the operator then. Without it tensors that a large last-level cache
      // holds make the roof, and only the roof, faster than memory.
      run();
      result.seconds.push_back(TimeCall(run, inner));
      if (cost_.roof == Cost::Roof::kFma) {
        const double flops = std::max(cost_.flops, 1e8);
        roofs[0].push_back(MeasureFma(context_, plan_.info().target, flops) * cost_.flops / flops);
      } else {
        for (std::size_t v = 0; v < roofs.size(); ++v) roofs[v].push_back(Stream(v, inner));
      }
    }
    result.roof = "fma";
    double best = Median(roofs[0]);
    if (cost_.roof == Cost::Roof::kStream) {
      result.roof =
          "stream(" + std::to_string(cost_.reads) + "," + std::to_string(cost_.writes) + ")";
      for (std::size_t v = 0; v < roofs.size(); ++v) {
        if (v > 0 && Median(roofs[v]) >= best) continue;
        best = Median(roofs[v]);
        result.roof_code = kStreamVariants[v].name;
      }
    }
    result.roof_value = (cost_.roof == Cost::Roof::kFma ? cost_.flops : cost_.bytes) / best;
    return result;
  }

 private:
  static void Check(const Status& status) {
    if (!status.ok()) throw UsageError{status.message()};
  }

  // Memory that is promised and then not there ends the process.
  void RefuseTooLarge() const {
    double bytes = cost_.stream_bytes * (cost_.reads + cost_.writes);
    for (const TensorSpec& spec : entry_.tensors(case_)) {
      double elements = 1;
      for (std::int64_t size : spec.sizes) elements *= static_cast<double>(size);
      bytes += elements * static_cast<double>(DTypeSize(spec.dtype));
    }
    const double present =
        static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    if (bytes < 0.9 * present) return;
    char text[128];
    std::snprintf(text, sizeof(text), "benchmark tensors need %.3g GB of %.3g GB, expected a ",
                  bytes / 1e9, present / 1e9);
    throw UsageError{std::string(entry_.name) + ": " + text + "smaller shape"};
  }

  double Stream(std::size_t variant, int inner) const {
    const std::int64_t tokens = case_.tokens();
    const StreamCall call{
        in_.get(),    out_.get(),
        tokens,       cost_.reads,
        cost_.writes, static_cast<std::size_t>(cost_.stream_bytes / static_cast<double>(tokens))};
    double seconds = 0;
    for (int i = 0; i < inner; ++i) {
      seconds += MeasureStream(context_, plan_.info().target, call, kStreamVariants[variant]);
    }
    return seconds / inner;
  }

  const OperatorEntry& entry_;
  Case case_;
  Context context_;
  Cost cost_;
  std::vector<Memory> memory_;
  Memory workspace_, in_, out_;
  Plan plan_;
};

nlohmann::json ToJson(const OperatorEntry& entry, const Case& c, const CaseBench& bench,
                      const Result& result, double fraction) {
  return {{"op", entry.op},
          {"pass", entry.pass},
          {"T", c.tokens()},
          {"D", c.d},
          {"n", c.n},
          {"L", c.sources},
          {"dtype", DTypeName(c.dtype)},
          {"threads", bench.threads()},
          {"target", TargetName(bench.info().target)},
          {"seconds_median", Median(result.seconds)},
          {"seconds_min", *std::min_element(result.seconds.begin(), result.seconds.end())},
          {"bytes", bench.cost().bytes},
          {"flops", bench.cost().flops},
          {"roof", result.roof},
          {"roof_value", result.roof_value},
          {"fraction", fraction}};
}

std::string Label(const Case& c) {
  return "T=" + std::to_string(c.tokens()) + " D=" + std::to_string(c.d) +
         " n=" + std::to_string(c.n) + " L=" + std::to_string(c.sources);
}

void PrintHeader() {
  std::printf("%-28s %-30s %-9s %-7s %10s %18s %14s %10s %8s\n", "operator", "shape", "dtype",
              "target", "time", "work", "rate", "roof", "fraction");
}

double PrintResult(const OperatorEntry& entry, const Case& c, const CaseBench& bench,
                   const Result& result) {
  const bool fma = bench.cost().roof == Cost::Roof::kFma;
  const double work = fma ? bench.cost().flops : bench.cost().bytes;
  const double seconds = Median(result.seconds);
  const double fraction = work / seconds / result.roof_value;
  std::printf("%-28s %-30s %-9s %-7s %8.1fus %13.3f %s %8.1f %s/s %5.1f %s/s %8.2f  %s%s\n",
              entry.name, Label(c).c_str(), DTypeName(c.dtype), TargetName(bench.info().target),
              seconds * 1e6, work * (fma ? 1e-9 : 1e-6), fma ? "GF" : "MB", work / seconds * 1e-9,
              fma ? "GF" : "GB", result.roof_value * 1e-9, fma ? "GF" : "GB", fraction,
              result.roof.c_str(),
              result.roof_code.empty() ? "" : (", " + result.roof_code).c_str());
  std::fflush(stdout);
  return fraction;
}

// How the plan cuts its work for the context's threads, without running it.
void PrintPlan(const OperatorEntry& entry, const Case& c, const Context& context) {
  std::vector<TensorView> views;
  // Addresses that nothing reads: Prepare looks at them for overlap only.
  std::uintptr_t address = std::uintptr_t{1} << 40;
  for (const TensorSpec& spec : entry.tensors(c)) {
    views.emplace_back(reinterpret_cast<void*>(address), spec.dtype, spec.sizes);
    address +=
        (static_cast<std::uintptr_t>(NumElements(spec.sizes)) * DTypeSize(spec.dtype) + 4096) / 64 *
        64;
  }
  Plan plan;
  if (Status status = entry.prepare(c, views, &plan, context); !status.ok()) {
    throw UsageError{status.message()};
  }
  const PlanInfo& info = plan.info();
  const std::int64_t threads = std::max(info.threads, 1);
  const std::int64_t rounds = std::max<std::int64_t>(CeilDiv(info.work_items, threads), 1);
  std::printf(
      "%s  items a thread: at most %lld; imbalance if all items take the same time: %.1f %%\n"
      "  as fast as %.1f of %d threads that are never idle\n\n",
      plan.Describe().c_str(), static_cast<long long>(rounds),
      100 * (1 - static_cast<double>(info.work_items) / static_cast<double>(rounds * threads)),
      static_cast<double>(info.work_items) / static_cast<double>(rounds), context.threads());
}

}  // namespace

int Bench(const BenchOptions& options) {
  if (options.repeat < 1) {
    throw UsageError{"--repeat is " + std::to_string(options.repeat) + ", expected at least 1"};
  }
  Context context;
  context.set_target(SelectTarget(options.target));
  if (options.target.empty()) DefaultTarget();
  if (options.threads < 0) {
    throw UsageError{"--threads is " + std::to_string(options.threads) + ", expected at least 1"};
  }
  if (options.threads > 0) context.set_threads(options.threads);
  std::vector<std::pair<const OperatorEntry*, Case>> work;
  for (const OperatorEntry* entry : SelectOperators(options.ops, options.pass)) {
    for (const Case& c : BenchCases(*entry, options)) work.emplace_back(entry, c);
  }
  if (options.plan) {
    for (const auto& [entry, c] : work) PrintPlan(*entry, c, context);
    return 0;
  }
  for (const auto& [entry, c] : work) {
    if (c.tokens() == 0) throw UsageError{"--shape: T is 0, expected at least 1"};
  }
  std::unique_ptr<OutputFile> file;
  if (!options.json.empty()) file = std::make_unique<OutputFile>(options.json);
  nlohmann::json json = nlohmann::json::array();
  Progress progress("bench");
  for (std::size_t k = 0; k < work.size(); ++k) {
    const auto& [entry, c] = work[k];
    CaseBench bench(*entry, c, context);
    const double share = 1.0 / static_cast<double>(work.size());
    const int repeat = options.quick ? std::min(options.repeat, 5) : options.repeat;
    const Result result =
        bench.Measure(repeat, options.min_time, &progress, static_cast<double>(k) * share, share);
    progress.Clear();
    if (k == 0) PrintHeader();
    const double fraction = PrintResult(*entry, c, bench, result);
    json.push_back(ToJson(*entry, c, bench, result, fraction));
  }
  if (file) file->Commit(json.dump(2) + "\n");
  return 0;
}

}  // namespace anabranch::tools
