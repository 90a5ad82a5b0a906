// The description of one pass of an operator (mhc_post, mhc_post_backward, ...), as plain data:
// which tensors and numbers it takes and gives, under which names, of which dtypes and sizes, and
// when they may be absent. An operator writes one a pass, in src/ops/<op>/spec.h, beside its public
// argument struct. Everything that is not arithmetic is read from it: shape inference and
// validation (core/infer.h), the C calls, the PyTorch schema and its rules, the catalogue of the
// tests, the fuzz calls and the tables of the documentation.
//
// A mistake in a description is a compile error (see SPEC_IS_SOUND at the end).
#ifndef ANABRANCH_SRC_CORE_SPEC_H_
#define ANABRANCH_SRC_CORE_SPEC_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "anabranch/mhc_options.h"
#include "anabranch/tensor.h"

namespace anabranch {

class Checker;
struct Sizes;

// Who calls: messages use the names that the caller's own signature has.
enum class Face : std::uint8_t { kCpp, kC, kPython };

// --- Access to a member of an argument struct, of any struct, through an address without a type:
// Field<&MhcPostArgs::x>, Field<&MhcPreArgs::options, &MhcOptions::norm_eps>.
template <class Struct, class Member>
Struct StructOf(Member Struct::*);

template <auto kFirst, auto... kRest>
auto& Field(void* args) {
  using Args = decltype(StructOf(kFirst));
  return ((static_cast<Args*>(args)->*kFirst).*....*kRest);
}

// --- Sizes. One letter a dimension; T stands for any number of leading dimensions.
enum class Dim : std::uint8_t {
  kTokens,   // T: the tokens, x's leading dimensions
  kStreams,  // n
  kHidden,   // D
  kRows,     // F: rows of the projection
  kWidth,    // K = n * D
  kSquare,   // n*n
  kLogits,   // R: the residual part of a token: n, n or n*n (matrix), or n! (permutation)
  kAlphas,   // A: entries of alpha, 3, or 2 without a residual part
  kSteps,    // 2I: normalisations of Sinkhorn's iteration, 2 * num_iters
  kSources,  // L: sources of an attention residual
  kQueries,  // S
  kOne,      // 1
  kThree,    // 3
};
inline constexpr int kDims = static_cast<int>(Dim::kThree) + 1;

// The forms that a tensor's sizes may have, written "T,n,n|T,n*n"; checked when it is compiled.
class ShapeSpec {
 public:
  static constexpr int kMaxForms = 3;
  static constexpr int kMaxLength = 4;
  struct Form {
    Dim dims[kMaxLength] = {};
    int length = 0;
    constexpr std::span<const Dim> all() const { return {dims, static_cast<std::size_t>(length)}; }
  };

  constexpr ShapeSpec() = default;
  consteval ShapeSpec(const char* text) : text_(text) {  // NOLINT(google-explicit-constructor)
    std::string_view rest = text;
    forms_count_ = 1;
    while (!rest.empty()) {
      const std::size_t end = rest.find_first_of(",|");
      Form& form = forms_[forms_count_ - 1];
      form.dims[form.length++] = Parse(rest.substr(0, end));
      if (end == std::string_view::npos) break;
      if (rest[end] == '|') ++forms_count_;
      rest = rest.substr(end + 1);
    }
  }

  constexpr bool empty() const { return forms_count_ == 0; }
  constexpr std::span<const Form> forms() const {
    return {forms_, static_cast<std::size_t>(forms_count_)};
  }
  constexpr bool Has(Dim dim) const {
    for (const Form& form : forms()) {
      for (Dim d : form.all()) {
        if (d == dim) return true;
      }
    }
    return false;
  }
  constexpr const char* text() const { return text_; }

 private:
  static constexpr Dim Parse(std::string_view letter) {
    constexpr std::string_view kLetters[] = {"T", "n",  "D", "F", "K", "n*n", "R",
                                             "A", "2I", "L", "S", "1", "3"};
    static_assert(std::size(kLetters) == kDims);
    for (int i = 0; i < kDims; ++i) {
      if (kLetters[i] == letter) return static_cast<Dim>(i);
    }
    throw "a dimension that no description knows";
  }

  Form forms_[kMaxForms] = {};
  int forms_count_ = 0;
  const char* text_ = "";
};

// --- Tensors.

// Dtypes are tied to the activations': float32, bfloat16, float16 or float64.
enum class Type : std::uint8_t {
  kActivation,   // that dtype
  kCoefficient,  // float32, or float64 beside float64
  kParameter,    // float32 (float64) or the activations' dtype
  kSame,         // the dtype and sizes of the argument `like`: the gradient of a parameter
};

enum class Presence : std::uint8_t {
  kRequired,
  kOptional,
  kResidual,  // given exactly when there is a residual part
  kWith,      // given exactly when the argument `with` is
  kAlsoWith,  // an output: required when the argument `with` is given, else optional
  kTogether,  // all of `group` or none of it
};

using enum Type;

// One line of a description's table: In<&MhcPreArgs::gamma>("gamma", "gamma", kCoefficient,
// "n,D").Optional().
struct Argument {
  const char* name;                                        // of the C++ member
  const char* c;                                           // in the C call's signature
  const char* python;                                      // of the Python operator
  TensorView& (*tensor)(void* args) = nullptr;             // exactly one of these two
  std::vector<TensorView>& (*list)(void* args) = nullptr;  // shape and type are those of a member
  const char* with = nullptr;                              // kWith, kAlsoWith
  const char* like = nullptr;    // kSame; else: an absent output takes that argument's sizes
  const char* may_be = nullptr;  // an output: the input that it may be exactly the same view as
  const char* gradient_of = nullptr;  // the forward's argument whose gradient this is, if any
  std::int64_t fewest = 1;            // of a list: members at the least
  bool& (*required_if)(void* args) = nullptr;  // kWith: else optional beside `with`
  ShapeSpec shape = {};
  int group = 0;  // kTogether: 1, 2, the second only with the first; kOptional: see Ask
  bool output = false;
  Type type = Type::kActivation;
  Presence presence = Presence::kRequired;
  bool is_source = false;  // counts in L

  constexpr const char* Name(Face face) const {
    return face == Face::kC ? c : face == Face::kPython ? python : name;
  }

  // Copies with one thing changed, for the lines of a table.
  constexpr Argument Python(const char* other) const {
    Argument changed = *this;
    changed.python = other;
    return changed;
  }
  constexpr Argument Optional() const { return As(Presence::kOptional, nullptr, 0); }
  constexpr Argument WithResidual() const { return As(Presence::kResidual, nullptr, 0); }
  constexpr Argument With(const char* other) const { return As(Presence::kWith, other, 0); }
  constexpr Argument AlsoWith(const char* other) const { return As(Presence::kAlsoWith, other, 0); }
  constexpr Argument Group(int number) const { return As(Presence::kTogether, nullptr, number); }
  constexpr Argument AskedBy(int number) const { return As(presence, nullptr, number); }
  constexpr Argument RequiredIf(bool& (*flag)(void*)) const {
    Argument changed = *this;
    changed.required_if = flag;
    return changed;
  }
  constexpr Argument Like(const char* other) const {
    Argument changed = *this;
    changed.like = other;
    return changed;
  }
  constexpr Argument MayBe(const char* input) const {
    Argument changed = *this;
    changed.may_be = input;
    return changed;
  }
  constexpr Argument GradientOf(const char* of) const {
    Argument changed = *this;
    changed.gradient_of = of;
    return changed;
  }
  constexpr Argument Fewest(std::int64_t members) const {
    Argument changed = *this;
    changed.fewest = members;
    return changed;
  }
  constexpr Argument Source() const {
    Argument changed = *this;
    changed.is_source = true;
    return changed;
  }

 private:
  constexpr Argument As(Presence how, const char* other, int number) const {
    Argument changed = *this;
    changed.presence = how;
    changed.with = other;
    changed.group = number;
    return changed;
  }
};

template <auto kMember>
constexpr Argument Tensor(const char* name, const char* c, bool output, Type type,
                          ShapeSpec shape) {
  Argument a{.name = name, .c = c, .python = name, .shape = shape, .output = output, .type = type};
  if constexpr (requires(void* args) { Field<kMember>(args).push_back(TensorView()); }) {
    a.list = &Field<kMember>;
  } else {
    a.tensor = &Field<kMember>;
  }
  if (std::string_view(name).starts_with("grad_")) a.gradient_of = name + 5;
  return a;
}
template <auto kMember>
constexpr Argument In(const char* name, const char* c, Type type, ShapeSpec shape) {
  return Tensor<kMember>(name, c, false, type, shape);
}
template <auto kMember>
constexpr Argument Out(const char* name, const char* c, Type type, ShapeSpec shape) {
  return Tensor<kMember>(name, c, true, type, shape);
}

// --- Numbers.
enum class Rule : std::uint8_t { kAny, kNonNegative, kFinite, kRange };

// Number<&MhcPreArgs::options, &MhcOptions::norm_eps>("options.norm_eps", "normEps",
// "norm_eps").NonNegative().
struct Attribute {
  const char* name;                       // in C++
  const char* c;                          // null: no argument of the C call
  const char* python;                     // null: no argument of the Python operator
  double& (*real)(void* args) = nullptr;  // exactly one of these
  std::int64_t& (*integer)(void* args) = nullptr;
  bool& (*flag)(void* args) = nullptr;
  Residual& (*form)(void* args) = nullptr;
  double& (*also)(void* args) = nullptr;  // a second field that the Python operator's number sets
  Rule rule = Rule::kAny;
  std::int64_t low = 0;  // kRange
  std::int64_t high = 0;

  constexpr const char* Name(Face face) const {
    if (face == Face::kC && c != nullptr) return c;
    if (face == Face::kPython && python != nullptr) return python;
    return name;
  }

  constexpr Attribute AlsoSets(double& (*field)(void*)) const {
    Attribute changed = *this;
    changed.also = field;
    return changed;
  }
  constexpr Attribute NonNegative() const { return WithRule(Rule::kNonNegative); }
  constexpr Attribute Finite() const { return WithRule(Rule::kFinite); }
  constexpr Attribute Range(std::int64_t lowest, std::int64_t highest) const {
    Attribute changed = WithRule(Rule::kRange);
    changed.low = lowest;
    changed.high = highest;
    return changed;
  }

 private:
  constexpr Attribute WithRule(Rule wanted) const {
    Attribute changed = *this;
    changed.rule = wanted;
    return changed;
  }
};

template <auto kFirst, auto... kRest>
constexpr Attribute Number(const char* name, const char* c, const char* python) {
  Attribute a{.name = name, .c = c, .python = python};
  using Value = std::remove_reference_t<decltype(Field<kFirst, kRest...>(nullptr))>;
  if constexpr (std::is_same_v<Value, double>) a.real = &Field<kFirst, kRest...>;
  if constexpr (std::is_same_v<Value, std::int64_t>) a.integer = &Field<kFirst, kRest...>;
  if constexpr (std::is_same_v<Value, bool>) a.flag = &Field<kFirst, kRest...>;
  if constexpr (std::is_same_v<Value, Residual>) a.form = &Field<kFirst, kRest...>;
  return a;
}

// A flag of the Python operator that asks for the outputs of a group.
struct Ask {
  const char* python;
  int group;
};

struct Limit {
  Dim dim;
  std::int64_t low;
  std::int64_t high;
};

// How many rows the projection has.
enum class Rows : std::uint8_t { kNone, kGates, kHead };  // kGates: 2n + R; kHead: n

struct PassSpec {
  const char* op;    // "mhc_post"
  const char* name;  // "mhc_post_backward"; messages in C++ and Python start with it
  std::span<const Argument> arguments;
  std::span<const Attribute> attributes = {};
  std::span<const Ask> asks = {};
  std::span<const Limit> limits = {};
  const char* leader = "x";        // the argument that says how many dimensions T stands for
  const char* stand_in = nullptr;  // whose dtype counts where the leader is a list without members
  Rows rows = Rows::kNone;
  Residual residual = Residual::kMatrix;              // the form, where no attribute says it
  std::int64_t& (*iterations)(void* args) = nullptr;  // num_iters, where 2I is its double
  // Hatches for what the description cannot say: reading the leader's sizes, in place of the rule
  // that its first form is matched; and checks that come last.
  void (*lead)(Checker& checker, void* args, Sizes* sizes, Face face) = nullptr;
  void (*more)(Checker& checker, void* args, const Sizes& sizes, Face face) = nullptr;

  constexpr const Argument* Find(std::string_view wanted) const {
    for (const Argument& a : arguments) {
      if (wanted == a.name) return &a;
    }
    return nullptr;
  }
  constexpr const Attribute* FormAttribute() const {
    for (const Attribute& a : attributes) {
      if (a.form != nullptr) return &a;
    }
    return nullptr;
  }
};

// Whether every name that a description refers to is described, with `static_assert`.
constexpr bool IsSound(const PassSpec& spec) {
  if (spec.Find(spec.leader) == nullptr) return false;
  for (const Argument& a : spec.arguments) {
    if ((a.tensor == nullptr) == (a.list == nullptr)) return false;
    if (spec.Find(a.name) != &a) return false;  // named twice
    const bool needs_with = a.presence == Presence::kWith || a.presence == Presence::kAlsoWith;
    if (needs_with != (a.with != nullptr) || (a.with != nullptr && spec.Find(a.with) == nullptr)) {
      return false;
    }
    if (a.presence == Presence::kTogether && a.group == 0) return false;
    if (a.like != nullptr && spec.Find(a.like) == nullptr) return false;
    if ((a.type == Type::kSame) != a.shape.empty()) return false;
    if (a.type == Type::kSame && a.like == nullptr) return false;
    if (a.may_be != nullptr && (!a.output || spec.Find(a.may_be) == nullptr)) return false;
  }
  for (const Attribute& a : spec.attributes) {
    const int kinds =
        (a.real != nullptr) + (a.integer != nullptr) + (a.flag != nullptr) + (a.form != nullptr);
    if (kinds != 1 || (a.rule == Rule::kRange && a.low > a.high)) return false;
  }
  return true;
}
// GCC with -fsanitize=undefined takes no address for a constant that is not null; the other builds
// check the same descriptions.
#if defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
#define SPEC_IS_SOUND(spec) static_assert((spec).name[0] != 0)
#else
#define SPEC_IS_SOUND(spec)                 \
  static_assert(::anabranch::IsSound(spec), \
                "a name in this description is missing, used twice or misspelt")
#endif

}  // namespace anabranch

#endif  // ANABRANCH_SRC_CORE_SPEC_H_
