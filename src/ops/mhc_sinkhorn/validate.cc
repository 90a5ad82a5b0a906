// Checks of mhc_sinkhorn and its backward: those of their description, and its hatches.
#include <string>

#include "src/core/infer.h"
#include "src/core/tokens.h"
#include "src/ops/mhc_sinkhorn/mhc_sinkhorn.h"
#include "src/ops/mhc_sinkhorn/spec.h"

namespace anabranch {
namespace {

bool IsMatrixForm(const TensorView& t, std::int64_t n) {
  if (n == 0) return true;
  const auto fits = [n](std::int64_t size) { return size == n || size == kUnknown; };
  return t.rank() >= 2 && fits(t.sizes[t.rank() - 1]) && fits(t.sizes[t.rank() - 2]);
}

}  // namespace

namespace specs {

void LeadByMatrices(Checker& c, const char* name, const TensorView& t, std::int64_t n,
                    Sizes* sizes) {
  if (n != 0 && (n < 1 || n > kMaxSinkhornStreams)) {
    return c.Invalid("n is " + std::to_string(n) + ", expected 1.." +
                     std::to_string(kMaxSinkhornStreams));
  }
  c.Sane(name, t, n == 0 ? 2 : 1, n == 0 ? "[*, n, n]" : "[*, n, n] or [*, n*n]");
  if (!c.ok()) return;
  if (n != 0) (*sizes)[Dim::kStreams] = n;
  sizes->tokens = LeadingDims(t, t.rank() - (IsMatrixForm(t, n) ? 2 : 1));
  sizes->Match(c, name, t, "T,n,n|T,n*n", "n");
}

void CheckSinkhornLogits(Checker& c, const MhcSinkhornBackwardArgs& args, Face face) {
  if (args.sum_out.defined() && !Clamps(args.options)) return;
  c.Required(specs::kMhcSinkhornBackward.Find("logits")->Name(face), args.logits);
}

}  // namespace specs

Status InferMhcSinkhorn(MhcSinkhornArgs* args) { return Infer(specs::kMhcSinkhorn, args); }
Status InferMhcSinkhornBackward(MhcSinkhornBackwardArgs* args) {
  return Infer(specs::kMhcSinkhornBackward, args);
}
Status Validate(const MhcSinkhornArgs& args, Face face) {
  return Validate(specs::kMhcSinkhorn, args, face);
}
Status Validate(const MhcSinkhornBackwardArgs& args, Face face) {
  return Validate(specs::kMhcSinkhornBackward, args, face);
}

SinkhornShape::SinkhornShape(const TensorView& t, std::int64_t given_n) {
  const bool matrix = IsMatrixForm(t, given_n);
  leading = t.rank() - (matrix ? 2 : 1);
  tokens = CountTokens(t.sizes, leading);
  n = given_n != 0 ? given_n : t.sizes[t.rank() - 1];
}

}  // namespace anabranch
