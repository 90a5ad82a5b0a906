#include "src/tools/harness/harness.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace anabranch::harness {
namespace {

// Half a unit in the last place of `dtype` at `value`.
double HalfUlp(double value, DType dtype) {
  int mantissa = 23;
  int min_exponent = -126;
  if (dtype == DType::kBFloat16) mantissa = 7;
  if (dtype == DType::kFloat16) {
    mantissa = 10;
    min_exponent = -14;
  }
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(0.5, std::max(exponent - 1, min_exponent) - mantissa);
}

double Largest(DType dtype) {
  if (dtype == DType::kFloat16) return 65504;
  if (dtype == DType::kBFloat16) return 3.3895313892515355e38;
  return 3.4028234663852886e38;
}

std::string Number(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

// Error as a fraction of what is allowed; infinity for a NaN or infinity that does not match.
double ErrorFraction(double got, double want, const TensorSpec& spec, double scale) {
  if (std::isnan(want) || std::isnan(got))
    return std::isnan(want) && std::isnan(got) ? 0 : INFINITY;
  const double allowed = HalfUlp(want, spec.dtype) * 1.001 + spec.tolerance * 0x1p-24 * scale;
  if (std::isinf(got)) {  // right when the reference rounds to it
    const bool overflows = std::abs(want) + allowed >= Largest(spec.dtype);
    return overflows && std::signbit(got) == std::signbit(want) ? 0 : INFINITY;
  }
  if (std::isinf(want)) return INFINITY;
  return std::abs(got - want) / allowed;
}

}  // namespace

void Verdict::Fail(const std::string& text) {
  if (ok) message = text;
  ok = false;
}

Case RandomCase(const OperatorEntry& entry, Random& random, std::int64_t max_elements) {
  static const std::vector<std::int64_t> kHidden = {1,   2,   3,   7,   15,  16,  17,  31,  32,
                                                    33,  48,  63,  64,  65,  100, 127, 128, 129,
                                                    255, 256, 257, 300, 511, 513, 777, 1024};
  static const std::vector<std::int64_t> kStreams = {1, 2, 3, 4, 4, 4, 4, 5, 6, 7, 8, 9, 13, 16};
  static const std::vector<std::int64_t> kSources = {1, 2, 3, 4, 5, 9, 17};
  static const std::vector<DType> kTypes = {DType::kBFloat16, DType::kFloat16, DType::kFloat32};
  for (;;) {
    Case c;
    c.batch = 1 + random.Below(3);
    c.seq = random.Below(20) == 0 ? 0 : 1 + random.Below(random.Below(4) == 0 ? 40 : 8);
    c.n = random.Pick(kStreams);
    c.d = random.Pick(kHidden);
    c.sources = random.Pick(kSources);
    c.num_iters = 1 + random.Below(6) * random.Below(5);
    c.dtype = random.Pick(kTypes);
    c.variant = static_cast<int>(random.Below(static_cast<std::int64_t>(entry.variants.size())));
    c.logit_scale = random.Pick(std::vector<double>{1, 3, 10});
    if (!entry.supports(c)) continue;
    const std::vector<TensorSpec> specs = entry.tensors(c);
    const bool small = std::all_of(specs.begin(), specs.end(), [&](const TensorSpec& spec) {
      return NumElements(spec.sizes) <= max_elements;
    });
    if (small) return c;
  }
}

std::string ToString(const OperatorEntry& entry, const Case& c) {
  return std::string(entry.name) + " batch=" + std::to_string(c.batch) +
         " seq=" + std::to_string(c.seq) + " n=" + std::to_string(c.n) +
         " d=" + std::to_string(c.d) + " sources=" + std::to_string(c.sources) +
         " num_iters=" + std::to_string(c.num_iters) + " scale=" + Number(c.logit_scale) +
         " dtype=" + DTypeName(c.dtype) + " variant='" +
         entry.variants[static_cast<std::size_t>(c.variant)] + "'";
}

Status RunCase(const OperatorEntry& entry, const Case& c, const CaseTensors& tensors,
               const Context& context) {
  Plan plan;
  Status status = entry.prepare(c, tensors.Views(), &plan, context);
  if (!status.ok()) return status;
  const Target ran = plan.info().target;
  if (context.target() != Target::kAuto && ran != Target::kAuto && ran != context.target()) {
    return Status(StatusCode::kInternal, std::string("ran on ") + TargetName(ran) + ", expected " +
                                             TargetName(context.target()));
  }
  return plan.Run(context);
}

Verdict CompareOutputs(const CaseTensors& got, const CaseTensors& want) {
  Verdict verdict;
  for (std::size_t k = 0; k < got.specs.size(); ++k) {
    const TensorSpec& spec = got.specs[k];
    if (!spec.output) continue;
    const std::vector<double> got_values = ReadAll(got.buffers[k].view);
    const std::vector<double> want_values = ReadAll(want.buffers[k].view);
    double scale = spec.magnitude;
    for (double value : want_values) {
      if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
    }
    for (std::size_t e = 0; e < got_values.size(); ++e) {
      const double fraction = ErrorFraction(got_values[e], want_values[e], spec, scale);
      verdict.worst = std::max(verdict.worst, fraction);
      if (fraction > 1) {
        verdict.Fail(spec.name + "[" + std::to_string(e) + "] is " + Number(got_values[e]) +
                     ", expected " + Number(want_values[e]) + " (error " + Number(fraction) +
                     " times what is allowed)");
      }
    }
  }
  return verdict;
}

Verdict CheckGradient(const OperatorEntry& backward, const Case& given, std::uint64_t seed,
                      double tolerance) {
  const OperatorEntry& forward = *ForwardOf(backward);
  Case c = given;
  c.dtype = DType::kFloat64;
  Random random(seed);
  CaseTensors grads = Allocate(backward, c, Layout::kDense, random);
  FillInputs(backward, c, grads, random);
  CaseTensors run = Allocate(forward, c, Layout::kDense, random);
  FillInputs(forward, c, run, random);
  for (std::size_t k = 0; k < run.specs.size(); ++k) {
    for (std::size_t j = 0; j < grads.specs.size(); ++j) {
      const bool shared = !run.specs[k].output && run.specs[k].name == grads.specs[j].name;
      if (shared) WriteAll(run.buffers[k].view, ReadAll(grads.buffers[j].view));
    }
  }
  Verdict verdict;
  // Caches that do not belong to inputs the backward does not take would make nonsense: recompute
  // them for this very forward.
  Status status = RunCase(forward, c, run, Context());
  for (std::size_t j = 0; status.ok() && j < grads.specs.size(); ++j) {
    for (std::size_t k = 0; k < run.specs.size(); ++k) {
      const bool cache =
          run.specs[k].output && !grads.specs[j].output && run.specs[k].name == grads.specs[j].name;
      if (cache) WriteAll(grads.buffers[j].view, ReadAll(run.buffers[k].view));
    }
  }
  if (status.ok()) status = RunCase(backward, c, grads, Context());
  if (!status.ok()) {
    verdict.Fail(status.message());
    return verdict;
  }
  const auto loss = [&]() -> double {
    Status ran = RunCase(forward, c, run, Context());
    if (!ran.ok()) return NAN;
    double sum = 0;
    for (std::size_t j = 0; j < grads.specs.size(); ++j) {
      if (grads.specs[j].output || grads.specs[j].gradient_of.empty()) continue;
      const std::vector<double> weight = ReadAll(grads.buffers[j].view);
      const std::vector<double> value = ReadAll(run.View(grads.specs[j].gradient_of));
      for (std::size_t e = 0; e < weight.size(); ++e) sum += weight[e] * value[e];
    }
    return sum;
  };
  int compared = 0;
  for (std::size_t j = 0; j < grads.specs.size(); ++j) {
    if (!grads.specs[j].output || grads.specs[j].gradient_of.empty()) continue;
    const TensorView& input = run.View(grads.specs[j].gradient_of);
    const std::vector<double> values = ReadAll(input);
    const std::vector<double> got = ReadAll(grads.buffers[j].view);
    double scale = 1e-3;
    for (double g : got) scale = std::max(scale, std::abs(g));
    for (std::size_t e = 0; e < got.size(); ++e) {
      std::vector<double> moved = values;
      const double step = 1e-5 * std::max(1.0, std::abs(values[e]));
      moved[e] = values[e] + step;
      WriteAll(input, moved);
      const double up = loss();
      moved[e] = values[e] - step;
      WriteAll(input, moved);
      const double down = loss();
      const double want = (up - down) / (2 * step);
      const double error = std::abs(got[e] - want) / scale;
      ++compared;
      verdict.worst = std::max(verdict.worst, error / tolerance);
      if (!(error <= tolerance)) {
        verdict.Fail(grads.specs[j].name + "[" + std::to_string(e) + "] is " + Number(got[e]) +
                     ", central difference " + Number(want));
      }
    }
    WriteAll(input, values);
  }
  if (compared == 0) verdict.Fail("no gradient was compared");
  return verdict;
}

}  // namespace anabranch::harness
