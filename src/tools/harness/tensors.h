// Tensors for tests and `anabranch check`: random values in awkward layouts, with poisoned memory
// around every element that belongs to no tensor.
#ifndef ANABRANCH_SRC_TOOLS_HARNESS_TENSORS_H_
#define ANABRANCH_SRC_TOOLS_HARNESS_TENSORS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/ops/catalog.h"
#include "src/tools/harness/guarded.h"

namespace anabranch::harness {

// splitmix64: small, seedable, the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next();
  std::int64_t Below(std::int64_t bound);  // uniform in [0, bound)
  double Uniform();                        // [0, 1)
  double Normal();                         // nearly N(0, 1); sums only: the same bits everywhere
  template <class T>
  const T& Pick(const std::vector<T>& from) {
    return from[static_cast<std::size_t>(Below(static_cast<std::int64_t>(from.size())))];
  }

 private:
  std::uint64_t state_;
};

enum class Layout {
  kDense,    // row-major, 64-byte aligned
  kAwkward,  // any of: padded rows, permuted dimensions, steps along the last dimension, expanded
             // (0-stride) input dimensions; the first or the last byte touches a page without
             // access, or the tensor lies at an odd element offset
  // One thing at a time, for tests that name it:
  kPaddedRows,  // rows longer than their contents
  kOddOffset,   // dense, one element behind a 64-byte boundary
  kTransposed,  // dimensions in reverse order in memory
  kExpanded     // gradients that come in have stride 0 everywhere, as those of a sum; of a forward
                // the first input is one token for all
};

// The memory of one tensor. Bytes outside the view's elements are 0xff (a NaN in every dtype).
struct Buffer {
  GuardedMemory memory;
  TensorView view;
};

// Calls f(byte offset into storage-independent element addresses) for all elements, row-major.
void ForEachElement(const TensorView& view, const std::function<void(std::byte*)>& f);

double ReadElement(const std::byte* address, DType dtype);
void WriteElement(std::byte* address, DType dtype, double value);  // rounds to nearest even

// The elements in row-major order.
std::vector<double> ReadAll(const TensorView& view);
void WriteAll(const TensorView& view, const std::vector<double>& values);

// The bytes of the elements in row-major order: equal bits give equal strings.
std::string Bits(const TensorView& view);

// Sets every byte of the elements.
void FillBytes(const TensorView& view, std::byte value);

// All tensor arguments of a call.
struct CaseTensors {
  std::vector<TensorSpec> specs;
  std::vector<Buffer> buffers;

  std::vector<TensorView> Views() const;
  const TensorView& View(const std::string& name) const;
};

// The bits of all outputs, one behind the other.
std::string OutputBits(const CaseTensors& tensors);

// Allocates and poisons; values are not set.
CaseTensors Allocate(const OperatorEntry& entry, const Case& c, Layout layout, Random& random);

// Inputs: random values per spec; what a forward computes for its backward comes from the
// forward's reference. Outputs stay poisoned.
void FillInputs(const OperatorEntry& entry, const Case& c, CaseTensors& tensors, Random& random);

// Once more what a forward computes for its backward, after the other inputs were changed.
void RefreshCaches(const OperatorEntry& entry, const Case& c, CaseTensors& tensors, Random& random);

// The forward of this backward computes that input.
bool IsCache(const OperatorEntry& entry, const Case& c, const TensorSpec& spec);

// The same call in double precision, dense, with the same (already rounded) input values.
CaseTensors InDouble(const OperatorEntry& entry, const Case& c, const CaseTensors& tensors);

// Dense copy of the call with the same inputs.
CaseTensors Dense(const OperatorEntry& entry, const Case& c, const CaseTensors& tensors);

}  // namespace anabranch::harness

#endif  // ANABRANCH_SRC_TOOLS_HARNESS_TENSORS_H_
