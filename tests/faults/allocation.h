// Makes allocations of the whole test program fail on purpose, and counts what is still allocated.
#ifndef ANABRANCH_TESTS_FAULTS_ALLOCATION_H_
#define ANABRANCH_TESTS_FAULTS_ALLOCATION_H_

#include <cstddef>
#include <cstdint>

namespace anabranch::faults {

enum class Mode {
  kOne,     // the k-th allocation fails, later ones work
  kAllFrom  // the k-th and every later one fail
};

// While one lives, operator new (and, without a sanitizer, malloc and its kin) of every thread and
// library of the process counts, and fails as told. k from 1; k = 0 only counts.
class FailingAllocations {
 public:
  explicit FailingAllocations(std::int64_t k, Mode mode = Mode::kOne);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  std::int64_t calls() const;   // allocations asked for so far
  bool failed() const;          // one of them failed
  std::size_t largest() const;  // bytes of the largest one asked for
};

// Blocks from operator new that nothing has deleted yet, of the whole process.
std::int64_t LiveBlocks();

}  // namespace anabranch::faults

#endif  // ANABRANCH_TESTS_FAULTS_ALLOCATION_H_
