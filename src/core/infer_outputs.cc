// What follows for the outputs of a call and for its memory.
#include <string>
#include <vector>

#include "src/core/infer_call.h"

namespace anabranch::infer {

bool Call::Wanted(const Argument& a, unsigned asked) const {
  switch (a.presence) {
    case Presence::kRequired:
      return true;
    case Presence::kOptional:
      return (asked >> a.group & 1) != 0;
    case Presence::kResidual:
      return HasResidual();
    case Presence::kWith:
    case Presence::kAlsoWith:
      return Given(a.with);
    case Presence::kTogether:
      break;
  }
  // A group is wanted if it is asked for, or one of it or of a later group is given.
  for (const Argument& other : spec_.arguments) {
    if (other.output && other.group >= a.group && Given(other)) return true;
  }
  return (asked >> a.group) != 0;
}

// An output may have more dimensions than the tensor that it follows from: sources, or Sinkhorn's
// steps.
bool Call::FitsAView(const Argument& a, int rank) {
  if (rank <= kMaxRank) return true;
  std::string message = std::string(Name(a)) + " has " + std::to_string(rank) +
                        " dimensions, expected at most " + std::to_string(kMaxRank);
  if (const TensorView* leader = LeaderTensor(); leader != nullptr) {
    message += ": " + Leader().str() + " has shape " + ToString(leader->sizes);
  }
  checker_.Invalid(message);
  return false;
}

void Call::SetOutput(const Argument& a) {
  if (a.list != nullptr) {  // one a member of the list that it is the gradient of
    const Dims sizes = sizes_.Output(a.shape);
    const bool stacked = face_ == Face::kPython;  // its operators return no lists
    if (!FitsAView(a, sizes.rank + stacked)) return;
    std::vector<TensorView>& list = a.list(args_);
    list.resize(spec_.Find(a.like)->list(args_).size());
    for (TensorView& t : list) anabranch::SetOutput(&t, Activation(), sizes);
    return;
  }
  const Argument* like = a.like == nullptr ? nullptr : spec_.Find(a.like);
  DType dtype = Activation();
  if (a.type != Type::kActivation) dtype = Checker::CoefficientFor(dtype);
  if (like != nullptr && Given(*like)) {
    const TensorView& original = like->tensor(args_);
    if (a.type == Type::kSame) dtype = original.dtype;
    return anabranch::SetOutput(&a.tensor(args_), dtype, original.sizes);
  }
  const Dims sizes = sizes_.Output(a.shape);
  if (Given(a) || !FitsAView(a, sizes.rank)) return;
  anabranch::SetOutput(&a.tensor(args_), dtype, sizes);
}

void Call::SetOutputs(unsigned asked) {
  // Which are wanted is decided before the first of them is set.
  std::uint64_t wanted = 0;
  for (std::size_t i = 0; i < spec_.arguments.size(); ++i) {
    const Argument& a = spec_.arguments[i];
    if (a.output && Wanted(a, asked)) wanted |= std::uint64_t{1} << i;
  }
  for (std::size_t i = 0; i < spec_.arguments.size(); ++i) {
    if ((wanted >> i & 1) != 0) SetOutput(spec_.arguments[i]);
  }
}

Status Call::Infer(unsigned asked) {
  CheckInputsThere();
  RefuseTypes();
  CheckForm();
  CheckGroups(false);
  CheckShapes();
  CheckAttributes();
  if (spec_.more != nullptr && checker_.ok()) spec_.more(checker_, args_, sizes_, face_);
  if (!checker_.ok()) return checker_.status();
  SetOutputs(asked);
  return checker_.status();
}

// --- Validation.

void Call::CheckGradientList(const Argument& a) {
  const std::size_t have = a.list(args_).size();
  const std::size_t want = spec_.Find(a.like)->list(args_).size();
  if (have == want) return;
  checker_.Invalid(std::string(Name(a)) + " has " + std::to_string(have) + " tensors, expected " +
                   std::to_string(want) + ", one for each of " + Name(a.like));
}

void Call::CheckOutputsThere() {
  for (const Argument& a : spec_.arguments) {
    if (!a.output || !checker_.ok()) continue;
    if (a.list != nullptr) {
      CheckGradientList(a);
      ForEach(a, [&](ArgName name, const TensorView& t) { checker_.Required(name, t); });
    } else if (a.required_if != nullptr && !a.required_if(args_)) {
      continue;
    } else if (a.presence != Presence::kTogether && Wanted(a, 0)) {
      checker_.Required(Name(a), a.tensor(args_));
    }
  }
  CheckGroups(true);
}

void Call::CheckMemory() {
  std::vector<NamedTensor> inputs;
  std::vector<NamedTensor> outputs;
  inputs.reserve(16);
  outputs.reserve(16);
  for (const Argument& a : spec_.arguments) {
    const char* may_be = a.may_be == nullptr ? nullptr : Name(a.may_be);
    ForEach(a, [&](ArgName name, const TensorView& t) {
      if (t.defined()) (a.output ? outputs : inputs).push_back({name, t, may_be});
    });
  }
  checker_.Memory(inputs, outputs);
}

Status Call::Validate() {
  CheckInputsThere();
  CheckOutputsThere();
  if (!checker_.ok()) return checker_.status();
  if (Status status = Infer(0); !status.ok()) return status;
  CheckMemory();
  return checker_.status();
}

}  // namespace anabranch::infer

namespace anabranch {

Status Infer(const PassSpec& spec, void* args, Face face, unsigned asked) noexcept try {
  return infer::Call(spec, args, face).Infer(asked);
} catch (...) {
  return Caught();
}

Status ValidateErased(const PassSpec& spec, void* args, Face face) noexcept try {
  return infer::Call(spec, args, face).Validate();
} catch (...) {
  return Caught();
}

}  // namespace anabranch
