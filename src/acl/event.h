// Events: marks in streams that streams and threads wait for.
#ifndef ANABRANCH_SRC_ACL_EVENT_H_
#define ANABRANCH_SRC_ACL_EVENT_H_

#include <chrono>
#include <cstdint>

#include "acl/acl_rt.h"
#include "src/acl/object.h"

namespace anabranch::acl {

// Records are numbered from 1; a wait is for a number, so that a later record or reset does not
// change what it waits for. All members but `timed` are read and written under AllSignals().mutex.
struct Event final : Object {
  static constexpr Kind kKind = Kind::kEvent;
  explicit Event(bool timed_event) : Object(kKind), timed(timed_event) {}

  const bool timed;              // keeps the time of its records
  std::uint64_t recorded = 0;    // records queued
  std::uint64_t completed = 0;   // the latest record that its stream has reached
  std::uint64_t reset = 0;       // records up to this one are taken back, as calls see it
  std::uint64_t reset_done = 0;  // the same, as the stream of the reset has reached it
  bool has_time = false;         // of the latest completed record
  bool destroyed = false;
  std::chrono::steady_clock::time_point time;
};

}  // namespace anabranch::acl

#endif  // ANABRANCH_SRC_ACL_EVENT_H_
