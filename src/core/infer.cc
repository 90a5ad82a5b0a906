#include "src/core/infer.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "src/core/sizes.h"

namespace anabranch {
namespace {

constexpr int kMaxList = 127;

// One call: its description, its arguments, and whose names messages use.
class Call {
 public:
  Call(const PassSpec& spec, void* args, Face face)
      : spec_(spec),
        args_(args),
        face_(face),
        checker_(face == Face::kC ? "" : spec.name),
        leader_(&spec.arguments[0]) {
    if (const Attribute* form = spec.FormAttribute()) {
      sizes_.residual = form->form(args);
    } else {
      sizes_.residual = spec.residual;
    }
    sizes_.rows_rule = spec.rows;
    for (const Argument& a : spec.arguments) {
      if (spec.leader == std::string_view(a.name)) leader_ = &a;
    }
  }

  Status Infer(unsigned asked);
  Status Validate();

 private:
  // --- One tensor, or every member of a list: f(name, tensor).
  template <class Function>
  void ForEach(const Argument& a, const Function& f) {
    if (a.tensor != nullptr) return f(ArgName(Name(a)), a.tensor(args_));
    if (a.list == nullptr) return;
    std::vector<TensorView>& list = a.list(args_);
    for (std::size_t i = 0; i < list.size(); ++i) {
      f(ArgName(Name(a), static_cast<std::int64_t>(i)), list[i]);
    }
  }

  const char* Name(const Argument& a) const { return a.Name(face_); }
  const char* Name(const char* argument) const { return spec_.Find(argument)->Name(face_); }
  bool Given(const Argument& a) const {
    if (a.tensor != nullptr) return a.tensor(args_).defined();
    return a.list != nullptr && !a.list(args_).empty();
  }
  bool Given(const char* name) const { return Given(*spec_.Find(name)); }
  bool HasResidual() const { return sizes_.residual != Residual::kNone; }
  DType Activation() const;
  // The name of the leader, "blocks[0]" if it is a list.
  ArgName Leader() const;
  const TensorView* LeaderTensor() const;

  void CheckInputsThere();
  void CheckList(const Argument& a);
  void RefuseTypes();
  void RefuseParameterType(ArgName name, const TensorView& t, DType activation);
  void RefuseCoefficientType(const Argument& a, ArgName name, const TensorView& t,
                             DType activation);
  void CheckForm();
  void RefuseUnexpected(const Argument& a, const std::string& why);
  void CheckGroups(bool output);
  void CheckShapes();
  void TakeLeader();
  void CheckLimits();
  Like LikeOf(const Argument& a) const;
  void CheckSame(const Argument& a, ArgName name, const TensorView& t);
  void CheckAttributes();
  void CheckNumber(const Attribute& a);
  void SetOutputs(unsigned asked);
  bool Wanted(const Argument& a, unsigned asked) const;
  bool FitsAView(const Argument& a, int rank);
  void SetOutput(const Argument& a);
  void CheckGradientList(const Argument& a);
  void CheckOutputsThere();
  void CheckMemory();

  const PassSpec& spec_;
  void* args_;
  Face face_;
  Checker checker_;
  Sizes sizes_;
  const Argument* leader_;
};

const TensorView* Call::LeaderTensor() const {
  if (leader_->tensor != nullptr) return &leader_->tensor(args_);
  const std::vector<TensorView>& list = leader_->list(args_);
  if (!list.empty()) return &list[0];
  return spec_.stand_in == nullptr ? nullptr : &spec_.Find(spec_.stand_in)->tensor(args_);
}

ArgName Call::Leader() const {
  if (leader_->tensor != nullptr) return Name(*leader_);
  if (leader_->list(args_).empty() && spec_.stand_in != nullptr) return Name(spec_.stand_in);
  return {Name(*leader_), 0};
}

DType Call::Activation() const {
  const TensorView* leader = LeaderTensor();
  return leader == nullptr ? DType::kUndefined : leader->dtype;
}

// --- What must be there, and what must not.

void Call::CheckList(const Argument& a) {
  const auto count = static_cast<std::int64_t>(a.list(args_).size());
  if (count < a.fewest || count > kMaxList) {
    checker_.Invalid(std::string(Name(a)) + " has " + std::to_string(count) +
                     " tensors, expected " + std::to_string(a.fewest) + ".." +
                     std::to_string(kMaxList));
  }
  ForEach(a, [&](ArgName name, const TensorView& t) { checker_.Required(name, t); });
}

void Call::CheckInputsThere() {
  for (const Argument& a : spec_.arguments) {
    if (a.output) continue;
    if (a.list != nullptr) {
      CheckList(a);
    } else if (a.presence == Presence::kRequired ||
               (a.presence == Presence::kResidual && HasResidual())) {
      checker_.Required(Name(a), a.tensor(args_));
    }
  }
}

void Call::RefuseUnexpected(const Argument& a, const std::string& why) {
  ForEach(a, [&](ArgName name, const TensorView& t) {
    if (!checker_.ok() || !t.defined()) return;
    checker_.Invalid(name.str() + " has shape " + ToString(t.sizes) + ", expected none (" + why +
                     ")");
  });
}

void Call::CheckForm() {
  if (const Attribute* form = spec_.FormAttribute()) {
    checker_.InRange(form->Name(face_), static_cast<std::int64_t>(form->form(args_)), 0,
                     static_cast<std::int64_t>(Residual::kNone));
  }
  for (const Argument& a : spec_.arguments) {
    if (a.output && a.list != nullptr && Given(a)) CheckGradientList(a);
    if (a.presence == Presence::kResidual && !HasResidual()) {
      RefuseUnexpected(a, "there is no residual part");
    }
    if (a.presence == Presence::kWith && !Given(a.with)) {
      RefuseUnexpected(a, std::string(Name(a.with)) + " is absent");
    }
  }
}

bool InGroup(const Argument& a, int group) {
  return a.presence == Presence::kTogether && a.group == group;
}

// The members of a group come together; the second group only with the first.
void Call::CheckGroups(bool output) {
  bool later = false;  // a later group is given
  for (int group = 2; group >= 1; --group) {
    bool any = later;
    const Argument* missing = nullptr;
    std::string all;
    int members = 0;
    for (const Argument& a : spec_.arguments) {
      if (!InGroup(a, group) || a.output != output) continue;
      ++members;
      any = any || Given(a);
      if (!Given(a) && missing == nullptr) missing = &a;
    }
    if (members == 0) continue;
    if (checker_.ok() && any && missing != nullptr) {
      int left = members;
      for (const Argument& a : spec_.arguments) {
        if (!InGroup(a, group) || a.output != output) continue;
        if (!all.empty()) all += left == 1 ? " and " : ", ";
        all += Name(a);
        --left;
      }
      checker_.Invalid(std::string(Name(*missing)) + " is absent, expected all of " + all +
                       " or none of them");
    }
    later = any;
  }
}

// --- Dtypes.

void Call::RefuseParameterType(ArgName name, const TensorView& t, DType activation) {
  if (!checker_.ok() || !t.defined() || t.dtype == activation) return;
  const DType wide = Checker::CoefficientFor(activation);
  if (t.dtype == wide) return;
  std::string wanted = DTypeName(wide);
  if (wide != activation) wanted += std::string(" or ") + DTypeName(activation);
  checker_.Invalid(name.str() + " has dtype " + DTypeName(t.dtype) + ", expected " + wanted +
                   " with " + DTypeName(activation) + " activations");
}

void Call::RefuseCoefficientType(const Argument& a, ArgName name, const TensorView& t,
                                 DType activation) {
  if (!t.defined() || t.dtype == Checker::CoefficientFor(activation)) return;
  if (leader_->type == Type::kCoefficient && &a != leader_) {  // there are no activations
    return checker_.HasDType(name, t, activation, ("like " + Leader().str()).c_str());
  }
  checker_.Coefficients(activation, {{name, t}});
}

void Call::RefuseTypes() {
  const TensorView* leader = LeaderTensor();
  if (!checker_.ok() || leader == nullptr) return;
  checker_.Activation(Leader(), *leader);
  const DType activation = leader->dtype;
  for (Type type : {Type::kActivation, Type::kCoefficient, Type::kParameter}) {
    for (const Argument& a : spec_.arguments) {
      if (a.type != type) continue;
      ForEach(a, [&](ArgName name, const TensorView& t) {
        if (type == Type::kActivation && t.defined() && t.dtype != activation) {
          checker_.HasDType(name, t, activation, ("like " + Leader().str()).c_str());
        }
        if (type == Type::kCoefficient) RefuseCoefficientType(a, name, t, activation);
        if (type == Type::kParameter) RefuseParameterType(name, t, activation);
      });
    }
  }
}

// --- Shapes.

// Dimensions that can only be told once n and D are as well known as they will be.
bool IsLate(const ShapeSpec& shape) {
  return shape.Has(Dim::kRows) || shape.Has(Dim::kWidth) || shape.Has(Dim::kAlphas) ||
         shape.Has(Dim::kSteps) || shape.Has(Dim::kThree);
}

void Call::CheckLimits() {
  for (const Limit& limit : spec_.limits) {
    std::string what = Leader().str();
    std::int64_t high = limit.high;
    if (limit.dim == Dim::kStreams) {
      const bool permutation = sizes_.residual == Residual::kPermutation;
      what += permutation ? ": n (permutation form)" : ": n";
      if (permutation) high = kMaxPermutationStreams;
    } else {
      what += limit.dim == Dim::kHidden ? ": D" : ": S";
    }
    checker_.InRange(what.c_str(), sizes_.Value(limit.dim), limit.low, high);
  }
}

void Call::TakeLeader() {
  const TensorView* t = LeaderTensor();
  if (!checker_.ok()) return;
  if (spec_.lead != nullptr) {
    spec_.lead(checker_, args_, &sizes_, face_);
    return CheckLimits();
  }
  if (t == nullptr) return;
  const ShapeSpec::Form form = sizes_.Resolve(leader_->shape.forms()[0]);
  std::string layout;
  for (Dim dim : form.all()) {
    const char* letter = dim == Dim::kTokens ? "*" : dim == Dim::kStreams ? "n" : "D";
    layout += (layout.empty() ? "[" : ", ") + std::string(letter);
  }
  const int inner = form.length - 1;
  checker_.Sane(Leader(), *t, inner, (layout + "]").c_str());
  if (!checker_.ok()) return;
  sizes_.tokens = LeadingDims(*t, t->rank() - inner);
  for (int i = 0; i < inner; ++i) {
    sizes_[form.dims[1 + i]] = t->sizes[t->rank() - inner + i];
  }
  CheckLimits();
}

Like Call::LikeOf(const Argument& a) const {
  if (a.shape.Has(Dim::kSteps) && spec_.iterations != nullptr) {
    for (const Attribute& attribute : spec_.attributes) {
      if (attribute.integer == spec_.iterations) return {Leader(), attribute.Name(face_)};
    }
  }
  if (spec_.FormAttribute() != nullptr) {
    if (a.shape.Has(Dim::kAlphas)) return "the residual form";
    if (a.shape.Has(Dim::kRows)) return {Leader(), "the residual form"};
  }
  return {Leader(), nullptr};
}

void Call::CheckSame(const Argument& a, ArgName name, const TensorView& t) {
  const Argument& like = *spec_.Find(a.like);
  const TensorView& original = like.tensor(args_);
  if (!t.defined() || !original.defined()) return;
  checker_.HasDType(name, t, original.dtype, (std::string("like ") + Name(like)).c_str());
  Dims pattern = original.sizes;
  checker_.Matches(name, t, &pattern, Name(like));
}

void Call::CheckShapes() {
  if (spec_.iterations != nullptr) {
    for (const Attribute& a : spec_.attributes) {  // outside its limits it is refused below
      if (a.integer != spec_.iterations) continue;
      const std::int64_t iterations = a.integer(args_);
      if (iterations >= a.low && iterations <= a.high) sizes_[Dim::kSteps] = 2 * iterations;
    }
  }
  std::int64_t sources = 0;
  for (const Argument& a : spec_.arguments) {
    if (!a.is_source) continue;
    sources += a.list != nullptr ? static_cast<std::int64_t>(a.list(args_).size()) : Given(a);
  }
  if (sources > 0) sizes_[Dim::kSources] = sources;
  TakeLeader();
  for (const bool late : {false, true}) {
    if (late) CheckLimits();
    for (const Argument& a : spec_.arguments) {
      if (!checker_.ok()) return;
      if (a.type == Type::kSame) {
        if (late) ForEach(a, [&](ArgName name, const TensorView& t) { CheckSame(a, name, t); });
        continue;
      }
      if (IsLate(a.shape) != late || (a.presence == Presence::kResidual && !HasResidual()))
        continue;
      const Like like = LikeOf(a);
      ForEach(a, [&](ArgName name, const TensorView& t) {
        sizes_.Match(checker_, name, t, a.shape, like);
      });
    }
  }
}

// --- Attributes.

void Call::CheckNumber(const Attribute& a) {
  const char* name = a.Name(face_);
  if (a.integer != nullptr) {
    const std::int64_t value = a.integer(args_);
    if (a.rule != Rule::kRange || (value >= a.low && value <= a.high)) return;
    return checker_.Invalid(std::string(name) + " is " + std::to_string(value) + ", expected " +
                            std::to_string(a.low) + ".." + std::to_string(a.high));
  }
  const double value = a.real(args_);
  if (a.rule == Rule::kNonNegative) return checker_.NonNegative(name, value);
  if (a.rule != Rule::kFinite || std::isfinite(value)) return;
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  checker_.Invalid(std::string(name) + " is " + text + ", expected a finite number");
}

void Call::CheckAttributes() {
  for (const Attribute& a : spec_.attributes) {
    if (a.real != nullptr || a.integer != nullptr) CheckNumber(a);
  }
}

// --- Outputs.

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

}  // namespace

Status Infer(const PassSpec& spec, void* args, Face face, unsigned asked) noexcept try {
  return Call(spec, args, face).Infer(asked);
} catch (...) {
  return Caught();
}

Status ValidateErased(const PassSpec& spec, void* args, Face face) noexcept try {
  return Call(spec, args, face).Validate();
} catch (...) {
  return Caught();
}

}  // namespace anabranch
