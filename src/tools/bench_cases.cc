#include "src/tools/bench_cases.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace anabranch::tools {
namespace {

// Of one dimension: so that the product of two fits what describes a tensor.
constexpr std::int64_t kMost = std::int64_t{1} << 31;

std::int64_t ParseNumber(const std::string& text, const std::string& whole) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec == std::errc::result_out_of_range || value > kMost) {
    throw UsageError{"--shape \"" + whole + "\": " + text + " is too large, expected at most " +
                     std::to_string(kMost)};
  }
  if (result.ec != std::errc() || result.ptr != end || value < 0) {
    throw UsageError{"--shape \"" + whole + "\": \"" + text +
                     "\" is no number, expected for example "
                     "T=4096,D=4096,n=4"};
  }
  return value;
}

void ApplyShape(const std::string& shape, Case* c) {
  std::size_t begin = 0;
  while (begin <= shape.size()) {
    const std::size_t comma = std::min(shape.find(',', begin), shape.size());
    const std::string part = shape.substr(begin, comma - begin);
    const std::size_t equal = part.find('=');
    const std::string key = part.substr(0, equal);
    const std::string text = equal == std::string::npos ? "" : part.substr(equal + 1);
    const std::int64_t value = ParseNumber(text, shape);
    if (key == "T")
      c->seq = value;
    else if (key == "D")
      c->d = value;
    else if (key == "n")
      c->n = value;
    else if (key == "L")
      c->sources = value;
    else if (key == "iters")
      c->num_iters = value;
    else if (key == "variant")
      c->variant = static_cast<int>(std::min<std::int64_t>(value, 1 << 20));
    else {
      std::string message = "--shape \"";
      message.append(shape).append("\": unknown key \"").append(key);
      throw UsageError{message.append("\", expected T, D, n, L, iters or variant")};
    }
    begin = comma + 1;
  }
}

DType ParseDType(const std::string& name) {
  if (name == "bf16" || name == "bfloat16") return DType::kBFloat16;
  if (name == "fp16" || name == "float16") return DType::kFloat16;
  if (name == "fp32" || name == "float32") return DType::kFloat32;
  throw UsageError{"--dtype is \"" + name + "\", expected bf16, fp16 or fp32"};
}

// "T=512..65536,D=4096" means T=512, T=1024, ... T=65536.
std::vector<std::string> ExpandRange(const std::string& shape) {
  const std::size_t dots = shape.find("..");
  if (dots == std::string::npos) return {shape};
  const std::size_t key = shape.rfind('=', dots);
  if (key == std::string::npos) return {shape};
  const std::size_t end = std::min(shape.find(',', dots), shape.size());
  const std::int64_t first = ParseNumber(shape.substr(key + 1, dots - key - 1), shape);
  const std::int64_t last = ParseNumber(shape.substr(dots + 2, end - dots - 2), shape);
  if (first < 1 || last < first) {
    throw UsageError{"--shape \"" + shape + "\": range " + std::to_string(first) + ".." +
                     std::to_string(last) + ", expected for example T=512..65536"};
  }
  std::vector<std::string> shapes;
  for (std::int64_t value = first; value <= last; value *= 2) {
    shapes.push_back(shape.substr(0, key + 1) + std::to_string(value) + shape.substr(end));
  }
  return shapes;
}

}  // namespace

std::vector<Case> BenchCases(const OperatorEntry& entry, const BenchOptions& options) {
  std::vector<Case> cases;
  if (options.shapes.empty()) cases = entry.bench_cases;
  for (const std::string& range : options.shapes) {
    for (const std::string& shape : ExpandRange(range)) {
      Case c = entry.bench_cases.empty() ? Case() : entry.bench_cases.front();
      ApplyShape(shape, &c);
      cases.push_back(c);
    }
  }
  for (Case& c : cases) {
    c.dtype = ParseDType(options.dtype);
    // First: an operator looks its variant up.
    const bool has_variant = c.variant < static_cast<int>(entry.variants.size());
    if (has_variant &&
        !entry.supports(c)) {  // operators on coefficients alone are FP32 whatever the activations
      Case coefficients = c;
      coefficients.dtype = DType::kFloat32;
      if (entry.supports(coefficients)) c = coefficients;
    }
    if (options.quick && options.shapes.empty()) c.seq = std::min<std::int64_t>(c.seq, 1024);
    if (!has_variant || !entry.supports(c)) {
      throw UsageError{std::string(entry.name) + " does not support T=" + std::to_string(c.seq) +
                       ",D=" + std::to_string(c.d) + ",n=" + std::to_string(c.n) +
                       ",L=" + std::to_string(c.sources) + ",variant=" + std::to_string(c.variant) +
                       ", expected a shape within its limits (see docs/ops)"};
    }
  }
  return cases;
}

}  // namespace anabranch::tools
