#include "src/core/check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace anabranch {
namespace {

// Lowest and one past the highest byte address of a view, in 64-bit arithmetic; false on overflow.
bool ByteRange(const TensorView& t, std::int64_t* low, std::int64_t* high) {
  std::int64_t lo = 0;
  std::int64_t hi = 0;
  for (int i = 0; i < t.rank(); ++i) {
    std::int64_t extent = 0;
    if (__builtin_mul_overflow(t.sizes[i] - 1, t.strides[i], &extent)) return false;
    std::int64_t& side = extent < 0 ? lo : hi;
    if (__builtin_add_overflow(side, extent, &side)) return false;
  }
  const auto element = static_cast<std::int64_t>(DTypeSize(t.dtype));
  if (__builtin_mul_overflow(lo, element, &lo)) return false;
  if (__builtin_add_overflow(hi, std::int64_t{1}, &hi)) return false;
  if (__builtin_mul_overflow(hi, element, &hi)) return false;
  const auto base = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(t.data));
  if (__builtin_add_overflow(base, lo, low) || __builtin_add_overflow(base, hi, high)) return false;
  return base > 0 ? *low > 0 : *high < 0;  // nothing lies at null, and addresses do not wrap around
}

bool SameView(const TensorView& a, const TensorView& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.sizes != b.sizes) return false;
  for (int i = 0; i < a.rank(); ++i) {
    if (a.sizes[i] > 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

// Whether each stride steps over all that the smaller ones reach, so that no two elements share
// memory. `shift`, if not 0, is one more dimension of size 2: the same view again, moved.
bool Nested(const Dims& sizes, const Dims& strides, std::int64_t shift) {
  struct Step {
    std::int64_t stride, count;
  };
  Step steps[kMaxRank + 1];  // smallest stride first
  int used = 0;
  const auto insert = [&](std::int64_t stride, std::int64_t count) {
    int k = used++;
    for (; k > 0 && steps[k - 1].stride > stride; --k) steps[k] = steps[k - 1];
    steps[k] = {stride, count};
  };
  for (int i = 0; i < sizes.rank; ++i) {
    if (sizes[i] > 1) insert(std::abs(strides[i]), sizes[i]);
  }
  if (shift != 0) insert(std::abs(shift), 2);
  std::int64_t span = 0;  // largest offset that the dimensions so far can reach
  for (int k = 0; k < used; ++k) {
    if (steps[k].stride <= span) return false;
    span += (steps[k].count - 1) * steps[k].stride;
  }
  return true;
}

// Views of one layout that lie between each other, as slices [:, l] of a stacked tensor do.
bool Interleave(const TensorView& a, const TensorView& b) {
  if (a.dtype != b.dtype || a.sizes != b.sizes || a.data == b.data) return false;
  for (int i = 0; i < a.rank(); ++i) {
    if (a.sizes[i] > 1 && a.strides[i] != b.strides[i]) return false;
  }
  const std::int64_t bytes = static_cast<std::byte*>(b.data) - static_cast<std::byte*>(a.data);
  const auto element = static_cast<std::int64_t>(DTypeSize(a.dtype));
  return bytes % element == 0 && Nested(a.sizes, a.strides, bytes / element);
}

}  // namespace

void Checker::Fail(StatusCode code, const std::string& message) {
  if (!ok()) return;
  status_ = Status(code, op_[0] == '\0' ? message : std::string(op_) + ": " + message);
}

void Checker::Required(ArgName name, const TensorView& t) {
  if (!ok() || t.defined()) return;
  Fail(StatusCode::kNullArgument, name.str() + " is absent, expected a tensor");
}

void Checker::AllOrNone(std::initializer_list<NamedTensor> tensors) {
  const auto defined = [](const NamedTensor& t) { return t.tensor.defined(); };
  if (!ok() || std::none_of(tensors.begin(), tensors.end(), defined)) return;
  const auto* missing = std::find_if_not(tensors.begin(), tensors.end(), defined);
  if (missing == tensors.end()) return;
  std::string all;
  for (const NamedTensor& t : tensors) {
    if (!all.empty()) all += &t + 1 == tensors.end() ? " and " : ", ";
    all += t.name.str();
  }
  Invalid(missing->name.str() + " is absent, expected all of " + all + " or none of them");
}

void Checker::Activation(ArgName name, const TensorView& t) {
  if (!ok() || !t.defined()) return;
  if (DTypeSize(t.dtype) == 0) {
    Invalid(name.str() + " has an unknown dtype, expected float32, bfloat16, float16 or float64");
  }
}

void Checker::HasDType(ArgName name, const TensorView& t, DType wanted, const char* why) {
  if (!ok() || !t.defined() || t.dtype == wanted) return;
  Invalid(name.str() + " has dtype " + DTypeName(t.dtype) + ", expected " + DTypeName(wanted) +
          " " + why);
}

void Checker::Coefficients(DType activation, std::initializer_list<NamedTensor> tensors) {
  const DType wanted = CoefficientFor(activation);
  const char* why = wanted == DType::kFloat64 ? "since the activations are float64"
                                              : "(coefficients are float32)";
  for (const NamedTensor& t : tensors) HasDType(t.name, t.tensor, wanted, why);
}

void Checker::Sane(ArgName name, const TensorView& t, int min_rank, const char* layout) {
  if (!ok() || !t.defined()) return;
  const auto refuse = [&](const std::string& wanted) {
    Invalid(name.str() + " has shape " + ToString(t.sizes) + ", expected " + wanted);
  };
  if (t.rank() > kMaxRank) return refuse("at most " + std::to_string(kMaxRank) + " dimensions");
  if (t.rank() < min_rank) return refuse(layout);
  bool known = true;
  for (std::int64_t size : t.sizes) {
    if (size < kUnknown) return refuse("sizes >= 0");
    known = known && size != kUnknown;
  }
  const std::int64_t count = t.numel();
  std::int64_t bytes = 0;
  if (known && (count < 0 || __builtin_mul_overflow(
                                 count, static_cast<std::int64_t>(DTypeSize(t.dtype)), &bytes))) {
    refuse("a size below 2^63 bytes");
  }
}

void Checker::Matches(ArgName name, const TensorView& t, Dims* pattern, const Like& like) {
  if (!ok() || !t.defined()) return;
  bool same = t.rank() == pattern->rank && t.rank() <= kMaxRank;
  for (int i = 0; same && i < t.rank(); ++i) {
    std::int64_t& wanted = (*pattern)[i];
    if (t.sizes[i] == kUnknown) continue;
    if (wanted == kUnknown) wanted = t.sizes[i];
    same = wanted == t.sizes[i];
  }
  if (!same) {
    Invalid(name.str() + " has shape " + ToString(t.sizes) + ", expected " + ToString(*pattern) +
            " to match " + like.str());
  }
}

void Checker::MatchesTokens(ArgName name, const TensorView& t, Dims* leading, Dims* inner,
                            const Like& like) {
  if (!ok() || !t.defined()) return;
  Dims pattern = Concat(*leading, *inner);
  Matches(name, t, &pattern, like);
  if (!ok()) return;
  std::copy_n(pattern.values, leading->rank, leading->values);
  std::copy_n(pattern.values + leading->rank, inner->rank, inner->values);
}

void Checker::MatchesMatrix(ArgName name, const TensorView& t, Dims* leading, std::int64_t* n,
                            const Like& like) {
  if (!ok() || !t.defined()) return;
  if (t.rank() == leading->rank + 1) {
    Dims flat{*n == kUnknown ? kUnknown : *n * *n};
    return MatchesTokens(name, t, leading, &flat, like);
  }
  Dims inner{*n, *n};
  MatchesTokens(name, t, leading, &inner, like);
  if (!ok()) return;
  if (inner[0] != kUnknown && inner[1] != kUnknown && inner[0] != inner[1]) {
    return Invalid(name.str() + " has shape " + ToString(t.sizes) + ", expected square matrices");
  }
  *n = inner[0] != kUnknown ? inner[0] : inner[1];
}

void Checker::InRange(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (!ok() || value == kUnknown || (value >= low && value <= high)) return;
  Invalid(std::string(what) + " is " + std::to_string(value) + ", expected " + std::to_string(low) +
          ".." + std::to_string(high));
}

void Checker::NonNegative(ArgName name, double value) {
  if (!ok() || (std::isfinite(value) && value >= 0)) return;
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  Invalid(name.str() + " is " + text + ", expected a finite number >= 0");
}

void Checker::Addressable(ArgName name, const TensorView& t) {
  if (!ok() || !t.defined()) return;
  if (t.strides.rank != t.rank()) {
    return Invalid(name.str() + " has strides " + ToString(t.strides) + " for shape " +
                   ToString(t.sizes) + ", expected one stride a dimension");
  }
  if (t.rank() > kMaxRank) return Sane(name, t, 0, "");
  for (std::int64_t size : t.sizes) {
    if (size >= 0) continue;  // kUnknown is for shape inference
    return Invalid(name.str() + " has shape " + ToString(t.sizes) + ", expected sizes >= 0");
  }
  if (t.numel() == 0) return;
  if (t.data == nullptr) {
    return Fail(StatusCode::kNullArgument, name.str() + " has shape " + ToString(t.sizes) +
                                               " and a null address, expected its data");
  }
  if (reinterpret_cast<std::uintptr_t>(t.data) % DTypeSize(t.dtype) != 0) {
    return Invalid(name.str() + " has an address that is no multiple of its element size " +
                   std::to_string(DTypeSize(t.dtype)) + ", expected element alignment");
  }
  std::int64_t low = 0;
  std::int64_t high = 0;
  if (!ByteRange(t, &low, &high)) {
    Invalid(name.str() + " has strides " + ToString(t.strides) + " for shape " + ToString(t.sizes) +
            ", expected an extent within memory");
  }
}

void Checker::NotSelfOverlapping(ArgName name, const TensorView& t) {
  if (!ok() || !t.defined() || t.numel() <= 1) return;
  if (!Nested(t.sizes, t.strides, 0)) {
    Invalid(name.str() + " has strides " + ToString(t.strides) + " for shape " + ToString(t.sizes) +
            ", expected an output whose elements do not overlap");
  }
}

void Checker::Disjoint(ArgName out_name, const TensorView& out, ArgName name, const TensorView& t,
                       bool same_view_works) {
  if (!ok() || !out.defined() || !t.defined() || out.numel() == 0 || t.numel() == 0) return;
  if (same_view_works && SameView(out, t)) return;
  std::int64_t out_low = 0;
  std::int64_t out_high = 0;
  std::int64_t low = 0;
  std::int64_t high = 0;
  if (!ByteRange(out, &out_low, &out_high) || !ByteRange(t, &low, &high)) return;
  if (out_low < high && low < out_high && !Interleave(out, t)) {
    Invalid(out_name.str() + " overlaps " + name.str() + ", expected separate memory" +
            (same_view_works ? " or exactly the same view" : ""));
  }
}

void Checker::Memory(std::span<const NamedTensor> inputs, std::span<const NamedTensor> outputs) {
  for (const NamedTensor& in : inputs) Addressable(in.name, in.tensor);
  for (const NamedTensor& out : outputs) {
    Addressable(out.name, out.tensor);
    NotSelfOverlapping(out.name, out.tensor);
  }
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const NamedTensor& out = outputs[k];
    for (const NamedTensor& in : inputs) {
      const bool may_be = out.may_be != nullptr && in.name.Is(out.may_be);
      Disjoint(out.name, out.tensor, in.name, in.tensor, may_be);
    }
    for (std::size_t j = 0; j < k; ++j) {
      Disjoint(out.name, out.tensor, outputs[j].name, outputs[j].tensor);
    }
  }
}

Dims LeadingDims(const TensorView& t, int count) {
  Dims dims;
  for (int i = 0; i < count; ++i) dims.push_back(t.sizes[i]);
  return dims;
}

Dims Concat(const Dims& a, const Dims& b) {
  Dims dims = a;
  for (std::int64_t v : b) dims.push_back(v);
  return dims;
}

void SetOutput(TensorView* t, DType dtype, const Dims& sizes) {
  if (t->defined()) return;
  *t = TensorView(nullptr, dtype, sizes);
}

std::string Describe(const char* name, const TensorView& t) {
  if (!t.defined()) return "";
  return std::string(name) + "=" + ToString(t.sizes) + " " + DTypeName(t.dtype) + " ";
}

}  // namespace anabranch
