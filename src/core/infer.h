// Shape inference and validation of any call, from its description (core/spec.h).
#ifndef ANABRANCH_SRC_CORE_INFER_H_
#define ANABRANCH_SRC_CORE_INFER_H_

#include <cstddef>

#include "anabranch/status.h"
#include "src/core/caught.h"
#include "src/core/check.h"
#include "src/core/spec.h"

namespace anabranch {

// Checks the inputs (null -> dtype -> rank and shape -> attributes), fills in sizes and dtype of
// every absent output, and refuses contradictions. Sizes may be kUnknown; addresses and strides are
// not looked at. `args` is the pass's argument struct. `asked`: bit g is set if the outputs of
// group g are wanted though none of them is given.
Status Infer(const PassSpec& spec, void* args, Face face = Face::kCpp, unsigned asked = 0) noexcept;

// All checks of a call: required outputs, Infer, then, unless addresses come later, memory: every
// tensor is addressable, no output overlaps itself, an input or another output.
Status ValidateErased(const PassSpec& spec, void* args, Face face) noexcept;

template <class Args>
Status Validate(const PassSpec& spec, const Args& args, Face face = Face::kCpp) noexcept {
  try {
    Args copy = args;  // shape inference writes into it
    return ValidateErased(spec, &copy, face);
  } catch (...) {
    return Caught();
  }
}

}  // namespace anabranch

#endif  // ANABRANCH_SRC_CORE_INFER_H_
