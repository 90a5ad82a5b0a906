// A call of one operator with plausible tensors of small sizes, some of which are spoilt: absent,
// of another dtype, shape, rank, stride, address, or sharing memory with another tensor.
#ifndef ANABRANCH_TESTS_FUZZ_CALL_H_
#define ANABRANCH_TESTS_FUZZ_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/ops/catalog.h"
#include "tests/fuzz/input.h"

namespace anabranch::fuzz {

// One tensor of the call. The memory holds exactly the elements that the view can reach, so that a
// sanitizer sees any other access.
struct Argument {
  TensorSpec spec;
  TensorView view;
  std::unique_ptr<std::byte[]> memory;
  std::int64_t low = 0;   // elements before view.data
  std::int64_t span = 0;  // elements in all
  bool real = true;       // the view is backed by memory: the call may run
};

// Tensors are looked up by name tens of times a call: std::string's comparison would be a fifth of
// the time under AddressSanitizer.
inline bool IsNamed(const Argument& a, const char* name) {
  const char* own = a.spec.name.c_str();
  while (*own == *name && *own != '\0') ++own, ++name;
  return *own == *name;
}

class RandomCall {
 public:
  // `flat_caches`: those of mhc_sinkhorn in the aclnn form.
  RandomCall(Input* in, const OperatorEntry& entry, bool flat_caches);

  const OperatorEntry& entry() const { return entry_; }
  const Case& shape() const { return case_; }
  std::string variant() const { return entry_.variants[static_cast<std::size_t>(case_.variant)]; }

  // The tensor of that name, or an absent one.
  TensorView operator()(const char* name) const;
  // The tensors name[0], name[1], ...
  std::vector<TensorView> List(const char* name) const;

  std::vector<Argument>& arguments() { return arguments_; }
  bool real() const;  // every tensor is backed by memory
  bool aliased() const { return aliased_; }
  bool plain() const { return plain_; }  // nothing was spoilt

  // What the tensors hold.
  std::string Contents() const;
  void Restore(const std::string& contents);
  // Makes all NaN of the outputs alike. Which of two NaN a sum keeps is up to the order of its
  // operands, which the compiler may choose, so their bits say nothing.
  void ForgetPayloads();

  // Spoils one tensor of the call, which then can no longer run; Undo() gives the old one back.
  Argument& Vary(Input* in);
  void Undo();

 private:
  Argument Make(Input* in, TensorSpec spec);
  void Spoil(Input* in, Argument* argument);
  void Back(Input* in, Argument* argument);

  const OperatorEntry& entry_;
  Case case_;
  std::vector<Argument> arguments_;
  Argument* varied_ = nullptr;
  TensorView before_;
  bool aliased_ = false;
  bool plain_ = true;
};

// Which operator the input is about.
const OperatorEntry& PickOperator(Input* in);

}  // namespace anabranch::fuzz

#endif  // ANABRANCH_TESTS_FUZZ_CALL_H_
