// The walk over one call's description that Infer and Validate of src/core/infer.h share: infer.cc
// has what is checked of inputs, infer_outputs.cc what follows for outputs and memory.
#ifndef ANABRANCH_SRC_CORE_INFER_CALL_H_
#define ANABRANCH_SRC_CORE_INFER_CALL_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/infer.h"
#include "src/core/sizes.h"

namespace anabranch::infer {

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

}  // namespace anabranch::infer

#endif  // ANABRANCH_SRC_CORE_INFER_CALL_H_
