#include "src/tools/harness/tensors.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace anabranch::harness {

std::uint64_t Random::Next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::int64_t Random::Below(std::int64_t bound) {
  return static_cast<std::int64_t>(Next() % static_cast<std::uint64_t>(bound));
}

double Random::Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

double Random::Normal() {
  double sum = -6;
  for (int k = 0; k < 12; ++k) sum += Uniform();
  return sum;
}

void ForEachElement(const TensorView& view, const std::function<void(std::byte*)>& f) {
  const std::int64_t count = view.numel();
  const auto element = static_cast<std::int64_t>(DTypeSize(view.dtype));
  for (std::int64_t k = 0; k < count; ++k) {
    std::int64_t rest = k;
    std::int64_t offset = 0;
    for (int i = view.rank() - 1; i >= 0; --i) {
      offset += rest % view.sizes[i] * view.strides[i];
      rest /= view.sizes[i];
    }
    f(static_cast<std::byte*>(view.data) + offset * element);
  }
}

double ReadElement(const std::byte* address, DType dtype) {
  if (dtype == DType::kFloat64) {
    double value;
    std::memcpy(&value, address, sizeof(value));
    return value;
  }
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, address, sizeof(value));
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, address, sizeof(bits));
  return dtype == DType::kBFloat16 ? ToFloat(BFloat16{bits}) : ToFloat(Float16{bits});
}

void WriteElement(std::byte* address, DType dtype, double value) {
  const auto narrow = static_cast<float>(value);
  if (dtype == DType::kFloat64) {
    std::memcpy(address, &value, sizeof(value));
  } else if (dtype == DType::kFloat32) {
    std::memcpy(address, &narrow, sizeof(narrow));
  } else {
    const std::uint16_t bits =
        dtype == DType::kBFloat16 ? ToBFloat16(narrow).bits : ToFloat16(narrow).bits;
    std::memcpy(address, &bits, sizeof(bits));
  }
}

std::vector<double> ReadAll(const TensorView& view) {
  std::vector<double> values;
  ForEachElement(view, [&](std::byte* p) { values.push_back(ReadElement(p, view.dtype)); });
  return values;
}

void WriteAll(const TensorView& view, const std::vector<double>& values) {
  std::size_t k = 0;
  ForEachElement(view, [&](std::byte* p) { WriteElement(p, view.dtype, values.at(k++)); });
}

namespace {

// Element after element in memory: a shortcut for large tensors.
bool IsDense(const TensorView& view) { return view.strides == ContiguousStrides(view.sizes); }

}  // namespace

std::string Bits(const TensorView& view) {
  std::string bits;
  const std::size_t element = DTypeSize(view.dtype);
  if (IsDense(view)) {
    bits.assign(static_cast<const char*>(view.data),
                static_cast<std::size_t>(view.numel()) * element);
    return bits;
  }
  ForEachElement(view,
                 [&](std::byte* p) { bits.append(reinterpret_cast<const char*>(p), element); });
  return bits;
}

std::string OutputBits(const CaseTensors& tensors) {
  std::string bits;
  for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
    if (tensors.specs[k].output) bits += Bits(tensors.buffers[k].view);
  }
  return bits;
}

void FillBytes(const TensorView& view, std::byte value) {
  const std::size_t element = DTypeSize(view.dtype);
  if (IsDense(view)) {
    std::memset(view.data, std::to_integer<int>(value),
                static_cast<std::size_t>(view.numel()) * element);
    return;
  }
  ForEachElement(view, [&](std::byte* p) { std::memset(p, std::to_integer<int>(value), element); });
}

namespace {

// Strides of an awkward layout and the elements it spans.
Dims AwkwardStrides(const TensorSpec& spec, Random& random, std::int64_t* span) {
  const int rank = spec.sizes.rank;
  int order[kMaxRank];  // innermost first
  for (int i = 0; i < rank; ++i) order[i] = rank - 1 - i;
  if (random.Below(4) == 0) {
    for (int i = rank - 1; i > 0; --i) std::swap(order[i], order[random.Below(i + 1)]);
  }
  Dims strides;
  strides.rank = rank;
  std::int64_t stride = random.Below(4) == 0 ? 1 + random.Below(3) : 1;
  *span = 1;
  for (int k = 0; k < rank; ++k) {
    const int i = order[k];
    const bool expanded = !spec.output && spec.expandable && random.Below(12) == 0;
    strides[i] = expanded ? 0 : stride;
    if (expanded) continue;
    *span += std::max<std::int64_t>(spec.sizes[i] - 1, 0) * stride;
    stride = stride * std::max<std::int64_t>(spec.sizes[i], 1) +
             (random.Below(3) == 0 ? random.Below(5) : 0);
  }
  return strides;
}

// Dense but for one thing. `first_input`: of a forward.
Dims NamedStrides(const TensorSpec& spec, Layout layout, bool first_input, std::int64_t* span) {
  const int rank = spec.sizes.rank;
  Dims strides = ContiguousStrides(spec.sizes);
  if (layout == Layout::kPaddedRows && rank >= 2) {
    Dims padded = spec.sizes;
    padded[rank - 1] += 7;
    strides = ContiguousStrides(padded);
    *span = std::max<std::int64_t>(NumElements(padded), 1);
  }
  if (layout == Layout::kTransposed) {
    std::int64_t stride = 1;
    for (int i = 0; i < rank; ++i) {
      strides[i] = stride;
      stride *= std::max<std::int64_t>(spec.sizes[i], 1);
    }
  }
  if (layout == Layout::kExpanded && !spec.output && spec.expandable) {
    const bool gradient = !spec.gradient_of.empty();
    for (int i = 0; i < rank; ++i) {
      if (gradient || (first_input && i < 2 && rank > 2)) strides[i] = 0;
    }
  }
  return strides;
}

Buffer MakeBuffer(const TensorSpec& spec, Layout layout, bool first_input, Random& random) {
  constexpr std::int64_t kPadding = 64;  // elements of poison on both sides
  std::int64_t span = std::max<std::int64_t>(NumElements(spec.sizes), 1);
  Dims strides = ContiguousStrides(spec.sizes);
  if (layout == Layout::kAwkward) {
    strides = AwkwardStrides(spec, random, &span);
  } else {
    strides = NamedStrides(spec, layout, first_input, &span);
  }
  const auto element = static_cast<std::int64_t>(DTypeSize(spec.dtype));
  Buffer buffer;
  buffer.memory = GuardedMemory(static_cast<std::size_t>((span + 2 * kPadding) * element));
  std::int64_t offset = (kPadding + (layout == Layout::kOddOffset ? 1 : 0)) * element;
  if (layout == Layout::kAwkward) {
    const auto last = static_cast<std::int64_t>(buffer.memory.size()) - span * element;
    const std::int64_t offsets[] = {0, last, last, (kPadding + random.Below(17)) * element};
    offset = std::min(offsets[random.Below(4)], last);
  }
  buffer.view = TensorView(buffer.memory.data() + offset, spec.dtype, spec.sizes, strides);
  return buffer;
}

}  // namespace

std::vector<TensorView> CaseTensors::Views() const {
  std::vector<TensorView> views;
  for (const Buffer& buffer : buffers) views.push_back(buffer.view);
  return views;
}

const TensorView& CaseTensors::View(const std::string& name) const {
  for (std::size_t k = 0; k < specs.size(); ++k) {
    if (specs[k].name == name) return buffers[k].view;
  }
  throw std::logic_error("no tensor named " + name);
}

CaseTensors Allocate(const OperatorEntry& entry, const Case& c, Layout layout, Random& random) {
  CaseTensors tensors;
  tensors.specs = entry.tensors(c);
  for (const TensorSpec& spec : tensors.specs) {
    const bool first_input = tensors.buffers.empty() && ForwardOf(entry) == &entry;
    tensors.buffers.push_back(MakeBuffer(spec, layout, first_input, random));
  }
  return tensors;
}

namespace {

bool IsOutput(const std::vector<TensorSpec>& specs, const std::string& name) {
  return std::any_of(specs.begin(), specs.end(),
                     [&](const TensorSpec& s) { return s.output && s.name == name; });
}

CaseTensors CopyInputs(const OperatorEntry& entry, const Case& c, const CaseTensors& from) {
  Random unused(0);
  CaseTensors to = Allocate(entry, c, Layout::kDense, unused);
  for (std::size_t k = 0; k < to.specs.size(); ++k) {
    if (!to.specs[k].output) WriteAll(to.buffers[k].view, ReadAll(from.buffers[k].view));
  }
  return to;
}

}  // namespace

bool IsCache(const OperatorEntry& entry, const Case& c, const TensorSpec& spec) {
  const OperatorEntry& forward = *ForwardOf(entry);
  return &forward != &entry && !spec.output && IsOutput(forward.tensors(c), spec.name);
}

void FillInputs(const OperatorEntry& entry, const Case& c, CaseTensors& tensors, Random& random) {
  for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
    const TensorSpec& spec = tensors.specs[k];
    if (spec.output || IsCache(entry, c, spec)) continue;
    ForEachElement(tensors.buffers[k].view, [&](std::byte* p) {
      WriteElement(p, spec.dtype, spec.mean + spec.scale * random.Normal());
    });
  }
  RefreshCaches(entry, c, tensors, random);
}

void RefreshCaches(const OperatorEntry& entry, const Case& c, CaseTensors& tensors,
                   Random& random) {
  const bool any = std::any_of(tensors.specs.begin(), tensors.specs.end(),
                               [&](const TensorSpec& spec) { return IsCache(entry, c, spec); });
  if (!any) return;
  const OperatorEntry& forward = *ForwardOf(entry);
  Case in_double = c;
  in_double.dtype = DType::kFloat64;
  CaseTensors run = Allocate(forward, in_double, Layout::kDense, random);
  FillInputs(forward, in_double, run, random);
  for (const TensorSpec& spec : run.specs) {
    const bool shared =
        !spec.output && std::any_of(tensors.specs.begin(), tensors.specs.end(),
                                    [&](const TensorSpec& s) { return s.name == spec.name; });
    if (shared) WriteAll(run.View(spec.name), ReadAll(tensors.View(spec.name)));
  }
  Plan plan;
  Status status = forward.prepare(in_double, run.Views(), &plan, Context::Default());
  if (status.ok()) status = plan.Run();
  if (!status.ok()) throw std::logic_error(status.message());
  for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
    if (!IsCache(entry, c, tensors.specs[k])) continue;
    WriteAll(tensors.buffers[k].view, ReadAll(run.View(tensors.specs[k].name)));
  }
}

CaseTensors InDouble(const OperatorEntry& entry, const Case& c, const CaseTensors& tensors) {
  Case in_double = c;
  in_double.dtype = DType::kFloat64;
  return CopyInputs(entry, in_double, tensors);
}

CaseTensors Dense(const OperatorEntry& entry, const Case& c, const CaseTensors& tensors) {
  return CopyInputs(entry, c, tensors);
}

}  // namespace anabranch::harness
