// What is checked of the inputs of a call.
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "src/core/infer_call.h"

namespace anabranch::infer {
namespace {

constexpr int kMaxList = 127;

bool InGroup(const Argument& a, int group) {
  return a.presence == Presence::kTogether && a.group == group;
}

// Dimensions that can only be told once n and D are as well known as they will be.
bool IsLate(const ShapeSpec& shape) {
  return shape.Has(Dim::kRows) || shape.Has(Dim::kWidth) || shape.Has(Dim::kAlphas) ||
         shape.Has(Dim::kSteps) || shape.Has(Dim::kThree);
}

}  // namespace

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

}  // namespace anabranch::infer
