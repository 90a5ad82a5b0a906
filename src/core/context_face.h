// Whose argument names the messages of a Prepare use: C++'s, unless a binding says otherwise.
#ifndef ANABRANCH_SRC_CORE_CONTEXT_FACE_H_
#define ANABRANCH_SRC_CORE_CONTEXT_FACE_H_

#include <cstdint>

#include "anabranch/context.h"
#include "src/core/spec.h"

namespace anabranch {

struct ContextFace {
  static Face Of(const Context& context) { return static_cast<Face>(context.face_); }
  static Context With(Context context, Face face) {
    context.face_ = static_cast<std::uint8_t>(face);
    return context;
  }
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_CORE_CONTEXT_FACE_H_
