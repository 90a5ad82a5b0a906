// The sizes of one call, found while its tensors are matched against a description.
#ifndef ANABRANCH_SRC_CORE_SIZES_H_
#define ANABRANCH_SRC_CORE_SIZES_H_

#include <array>
#include <cstdint>

#include "anabranch/mhc_options.h"
#include "anabranch/tensor.h"
#include "src/core/check.h"
#include "src/core/spec.h"

namespace anabranch {

inline constexpr std::int64_t kMaxPermutationStreams = 5;

// Logits of a token's residual part; kUnknown if n is, or is outside the form's limits.
std::int64_t ResidualSize(Residual residual, std::int64_t n);

struct Sizes {
  Dims tokens;
  Residual residual = Residual::kMatrix;
  Rows rows_rule = Rows::kNone;

  Sizes() { values_.fill(kUnknown); }

  std::int64_t& operator[](Dim dim) { return values_[static_cast<std::size_t>(dim)]; }
  // What is known of a dimension, or follows from others.
  std::int64_t Value(Dim dim) const;

  // The sizes of a form: tokens and the rest; unknown ones are kUnknown.
  Dims Expand(const ShapeSpec::Form& form) const;

  // The first form of the shape that has as many dimensions as t and, if there are several, whose
  // sizes agree with t; else the first form. The residual part of a token is one or two dimensions.
  ShapeSpec::Form Choose(const ShapeSpec& shape, const TensorView& t) const;

  // Checks t against the shape and learns from it what was unknown.
  void Match(Checker& c, ArgName name, const TensorView& t, const ShapeSpec& shape,
             const Like& like);

  // The sizes of an absent output: the first form.
  Dims Output(const ShapeSpec& shape) const { return Expand(Resolve(shape.forms()[0])); }

  // R replaced by what it is in this call: n, n or n!.
  ShapeSpec::Form Resolve(const ShapeSpec::Form& form) const;

 private:
  void Learn(Checker& c, ArgName name, const TensorView& t, const ShapeSpec::Form& form,
             const Dims& found);

  std::array<std::int64_t, kDims> values_;
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_CORE_SIZES_H_
