// Which memory queued work still needs. aclrtFree of such memory waits for that work, so that a
// program that frees a workspace right behind phase 2 does not get wrong numbers.
#ifndef ANABRANCH_SRC_ACL_HOLDS_H_
#define ANABRANCH_SRC_ACL_HOLDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "anabranch/tensor.h"

namespace anabranch::acl {

// Bytes [low, high).
struct Range {
  std::uintptr_t low = 0;
  std::uintptr_t high = 0;
};

Range RangeOf(const void* address, std::size_t bytes);
// All that a validated view reaches; empty for an absent one.
Range RangeOf(const TensorView& view);

// Held from its making to its end; work captures it by shared pointer.
class Hold {
 public:
  explicit Hold(std::vector<Range> ranges);
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  bool Meets(const Range& range) const;

 private:
  std::vector<Range> ranges_;
};

// Frees memory of std::aligned_alloc once nothing holds it. Waits for that, except in a callback
// that a stream runs or waits for (work behind it would never begin): there the last work that
// holds the block frees it, and the call returns at once.
void FreeWhenReleased(void* block, std::size_t bytes);

// For the time in which this thread runs what a stream waits for.
class InsideStreamWork {
 public:
  InsideStreamWork();
  ~InsideStreamWork();
  InsideStreamWork(const InsideStreamWork&) = delete;
  InsideStreamWork& operator=(const InsideStreamWork&) = delete;

 private:
  bool before_;
};

}  // namespace anabranch::acl

#endif  // ANABRANCH_SRC_ACL_HOLDS_H_
