// The words of every argument check. An operator's Infer and Prepare are lists of calls to a
// Checker; the first failure sticks, later calls do nothing, and status() returns it.
#ifndef ANABRANCH_SRC_CORE_CHECK_H_
#define ANABRANCH_SRC_CORE_CHECK_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "anabranch/status.h"
#include "anabranch/tensor.h"

namespace anabranch {

// The name of an argument in messages; "blocks[3]" for a member of a list. Text is made when it is
// needed, not for every call.
class ArgName {
 public:
  ArgName(const char* text, std::int64_t index = -1)  // NOLINT(google-explicit-constructor)
      : text_(text), index_(index) {}
  std::string str() const {
    std::string name = text_;
    if (index_ >= 0) name.append("[").append(std::to_string(index_)).append("]");
    return name;
  }
  bool Is(const char* name) const { return std::string_view(text_) == name && index_ < 0; }

 private:
  const char* text_;
  std::int64_t index_;
};

// What a tensor's sizes have to match, in messages: "x", "x and num_iters".
struct Like {
  Like(const char* text) : name(text) {}  // NOLINT(google-explicit-constructor)
  Like(ArgName argument, const char* and_also) : name(argument), also(and_also) {}
  std::string str() const { return also == nullptr ? name.str() : name.str() + " and " + also; }

  ArgName name;
  const char* also = nullptr;
};

// A tensor argument and its name in messages.
struct NamedTensor {
  ArgName name;
  TensorView tensor;
  const char* may_be = nullptr;  // for an output: the input that it may be exactly the same view as
};

class Checker {
 public:
  // Messages start with "op: ", unless `op` is empty.
  explicit Checker(const char* op) : op_(op) {}

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

  // Records "op: message" unless something failed before.
  void Fail(StatusCode code, const std::string& message);
  void Invalid(const std::string& message) { Fail(StatusCode::kInvalidArgument, message); }

  // --- null: the tensor must be there.
  void Required(ArgName name, const TensorView& t);

  // Tensors that are given together or not at all.
  void AllOrNone(std::initializer_list<NamedTensor> tensors);

  // --- dtype. Activation: float32, bfloat16, float16 or float64. Coefficients that go with an
  // activation dtype are float32, or float64 when that is float64.
  void Activation(ArgName name, const TensorView& t);
  void HasDType(ArgName name, const TensorView& t, DType wanted, const char* why);
  void Coefficients(DType activation, std::initializer_list<NamedTensor> tensors);
  static DType CoefficientFor(DType activation) {
    return activation == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  }

  // --- rank and shape. Rank, sizes >= 0 (or unknown), products that fit 63 bits.
  void Sane(ArgName name, const TensorView& t, int min_rank, const char* layout);

  // The shape must be `pattern`; unknown sizes agree with everything. What either side knows is
  // written into *pattern. Absent tensors pass. "..., expected (2, 8, 4) to match x".
  void Matches(ArgName name, const TensorView& t, Dims* pattern, const Like& like);

  // As Matches for a tensor [leading..., inner...]; refines *leading and *inner.
  void MatchesTokens(ArgName name, const TensorView& t, Dims* leading, Dims* inner,
                     const Like& like);

  // As MatchesTokens for [*leading, n, n] or, flattened, [*leading, n*n]; refines *n.
  void MatchesMatrix(ArgName name, const TensorView& t, Dims* leading, std::int64_t* n,
                     const Like& like);

  void InRange(const char* what, std::int64_t value, std::int64_t low, std::int64_t high);

  // An eps or the like: finite and >= 0.
  void NonNegative(ArgName name, double value);

  // --- what only Prepare can check: addresses and strides.
  // Known sizes, strides of the right rank whose extent fits the address space, and an address
  // unless empty.
  void Addressable(ArgName name, const TensorView& t);
  // An output: no two elements share memory.
  void NotSelfOverlapping(ArgName name, const TensorView& t);
  // Refuses memory shared by an output and another tensor. Exactly the same view passes when
  // `same_view_works`.
  void Disjoint(ArgName out_name, const TensorView& out, ArgName name, const TensorView& t,
                bool same_view_works = false);
  // All of these for a call: every tensor addressable, no output overlaps itself, an input, or
  // another output. Absent tensors pass.
  void Memory(std::span<const NamedTensor> inputs, std::span<const NamedTensor> outputs);

  // The rest of Prepare's checks, once all that it requires is there: those of shape inference,
  // then memory.
  template <class Args>
  Status Call(const Args& args, Status (*infer)(Args*), std::span<const NamedTensor> inputs,
              std::span<const NamedTensor> outputs) {
    if (!ok()) return status();
    Args inferred = args;
    if (Status inferring = infer(&inferred); !inferring.ok()) return inferring;
    Memory(inputs, outputs);
    return status();
  }

 private:
  const char* op_;
  Status status_;
};

// First `count` sizes of t.
Dims LeadingDims(const TensorView& t, int count);
Dims Concat(const Dims& a, const Dims& b);

// In shape inference: gives an absent output its sizes and dtype (no address, dense strides).
void SetOutput(TensorView* t, DType dtype, const Dims& sizes);

// "x=(1, 8, 4, 64) bfloat16" for plan descriptions.
std::string Describe(const char* name, const TensorView& t);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_CORE_CHECK_H_
