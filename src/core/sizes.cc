#include "src/core/sizes.h"

#include <algorithm>

namespace anabranch {
namespace {

constexpr std::int64_t kMaxMatrixStreams = 1 << 15;  // n*n stays far below 2^63

std::int64_t Factorial(std::int64_t n) { return n <= 1 ? 1 : n * Factorial(n - 1); }

std::int64_t Product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  const bool known = a != kUnknown && b != kUnknown && !__builtin_mul_overflow(a, b, &product);
  return known ? product : kUnknown;
}

// Dimensions that are learned from tensors; the others follow from these.
bool IsLearned(Dim dim) {
  return dim != Dim::kSquare && dim != Dim::kLogits && dim != Dim::kOne && dim != Dim::kThree;
}

}  // namespace

std::int64_t ResidualSize(Residual residual, std::int64_t n) {
  if (residual == Residual::kNone) return 0;
  const bool permutation = residual == Residual::kPermutation;
  if (n < 1 || n > (permutation ? kMaxPermutationStreams : kMaxMatrixStreams)) return kUnknown;
  return permutation ? Factorial(n) : n * n;
}

std::int64_t Sizes::Value(Dim dim) const {
  const std::int64_t value = values_[static_cast<std::size_t>(dim)];
  if (value != kUnknown) return value;
  const std::int64_t n = values_[static_cast<std::size_t>(Dim::kStreams)];
  switch (dim) {
    case Dim::kOne:
      return 1;
    case Dim::kThree:
      return 3;
    case Dim::kSquare:
      return Product(n, n);
    case Dim::kWidth:
      return Product(n, values_[static_cast<std::size_t>(Dim::kHidden)]);
    case Dim::kAlphas:
      return residual == Residual::kNone ? 2 : 3;
    case Dim::kLogits:
      return ResidualSize(residual, n);
    case Dim::kRows: {
      const std::int64_t logits = ResidualSize(residual, n);
      if (rows_rule == Rows::kHead) return n;
      return n == kUnknown || logits == kUnknown ? kUnknown : 2 * n + logits;
    }
    default:
      return kUnknown;
  }
}

ShapeSpec::Form Sizes::Resolve(const ShapeSpec::Form& form) const {
  ShapeSpec::Form resolved;
  for (Dim dim : form.all()) {
    if (dim == Dim::kLogits && residual == Residual::kMatrix) {
      resolved.dims[resolved.length++] = Dim::kStreams;
      dim = Dim::kStreams;
    }
    resolved.dims[resolved.length++] = dim;
  }
  return resolved;
}

Dims Sizes::Expand(const ShapeSpec::Form& form) const {
  Dims sizes;
  for (Dim dim : form.all()) {
    if (dim != Dim::kTokens) {
      sizes.push_back(Value(dim));
      continue;
    }
    for (std::int64_t size : tokens) sizes.push_back(size);
  }
  return sizes;
}

ShapeSpec::Form Sizes::Choose(const ShapeSpec& shape, const TensorView& t) const {
  ShapeSpec::Form best = Resolve(shape.forms()[0]);
  bool has_rank = Expand(best).rank == t.rank();
  const auto agrees = [&](const ShapeSpec::Form& form) {
    const Dims wanted = Expand(form);
    for (int i = 0; i < t.rank(); ++i) {
      const bool known = wanted[i] != kUnknown && t.sizes[i] != kUnknown;
      if (known && wanted[i] != t.sizes[i]) return false;
    }
    return true;
  };
  if (t.rank() > kMaxRank || (has_rank && agrees(best))) return best;
  const auto consider = [&](const ShapeSpec::Form& form) {
    if (Expand(form).rank != t.rank()) return false;
    if (!has_rank) best = form;
    has_rank = true;
    if (!agrees(form)) return false;
    best = form;
    return true;
  };
  for (const ShapeSpec::Form& form : shape.forms()) {
    if (consider(Resolve(form))) return best;
    // The matrices of the residual part may be flattened.
    if (form.dims[form.length - 1] != Dim::kLogits || residual != Residual::kMatrix) continue;
    ShapeSpec::Form flat = form;
    flat.dims[flat.length - 1] = Dim::kSquare;
    if (consider(flat)) return best;
  }
  return best;
}

void Sizes::Match(Checker& c, ArgName name, const TensorView& t, const ShapeSpec& shape,
                  const Like& like) {
  if (!c.ok() || !t.defined()) return;
  const ShapeSpec::Form form = Choose(shape, t);
  Dims pattern = Expand(form);
  c.Matches(name, t, &pattern, like);
  if (c.ok()) Learn(c, name, t, form, pattern);
}

void Sizes::Learn(Checker& c, ArgName name, const TensorView& t, const ShapeSpec::Form& form,
                  const Dims& found) {
  int at = 0;
  for (Dim dim : form.all()) {
    if (dim == Dim::kTokens) {
      std::copy_n(found.begin() + at, tokens.rank, tokens.values);
      at += tokens.rank;
      continue;
    }
    const std::int64_t size = found[at++];
    if (size == kUnknown || !IsLearned(dim)) continue;
    std::int64_t& value = (*this)[dim];
    if (value != kUnknown && value != size) {  // n twice in one tensor
      return c.Invalid(name.str() + " has shape " + ToString(t.sizes) +
                       ", expected square matrices");
    }
    value = size;
  }
}

}  // namespace anabranch
