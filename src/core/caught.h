// The end of a function that must not throw: what a caught exception means as a Status.
#ifndef ANABRANCH_SRC_CORE_CAUGHT_H_
#define ANABRANCH_SRC_CORE_CAUGHT_H_

#include <new>

#include "anabranch/status.h"

namespace anabranch {

// For the handler of a function-try-block: `} catch (...) { return Caught(); }`. The messages fit
// into a string without an allocation, since memory may be what is missing.
inline Status Caught() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "out of memory");
  } catch (...) {
    return Status(StatusCode::kInternal, "internal error");
  }
}

}  // namespace anabranch

#endif  // ANABRANCH_SRC_CORE_CAUGHT_H_
