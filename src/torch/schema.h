// The kinds of an operator's arguments, read from its schema at compile time, so that what torch is
// told and what a call does cannot differ.
#ifndef ANABRANCH_SRC_TORCH_SCHEMA_H_
#define ANABRANCH_SRC_TORCH_SCHEMA_H_

#include <array>
#include <cstddef>
#include <string_view>

namespace anabranch::torch_face {

enum class Kind { kTensor, kOptionalTensor, kTensorList, kInt, kFloat, kBool };

// "name(Tensor x, Tensor? y, float eps) -> ...": kTensor, kOptionalTensor, kFloat.
class Schema {
 public:
  static constexpr std::size_t kMaxArguments = 24;

  consteval explicit Schema(std::string_view text) {
    std::string_view rest = text.substr(text.find('(') + 1);
    rest = rest.substr(0, rest.find(')'));
    while (!rest.empty()) {
      const std::size_t comma = rest.find(", ");
      const std::string_view argument = rest.substr(0, comma);
      kinds_[count_++] = KindOf(argument.substr(0, argument.find(' ')));
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 2);
    }
  }

  constexpr std::size_t size() const { return count_; }
  constexpr Kind operator[](std::size_t i) const { return kinds_[i]; }

  // Arguments that are one tensor, given or not; and numbers.
  constexpr std::size_t tensors() const {
    return Count(Kind::kTensor) + Count(Kind::kOptionalTensor);
  }
  constexpr std::size_t attributes() const {
    return Count(Kind::kInt) + Count(Kind::kFloat) + Count(Kind::kBool);
  }

 private:
  static consteval Kind KindOf(std::string_view type) {
    if (type == "Tensor") return Kind::kTensor;
    if (type == "Tensor?") return Kind::kOptionalTensor;
    if (type == "Tensor[]") return Kind::kTensorList;
    if (type == "int") return Kind::kInt;
    if (type == "float") return Kind::kFloat;
    if (type == "bool") return Kind::kBool;
    throw "a type that no operator has";  // does not compile
  }
  constexpr std::size_t Count(Kind kind) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < count_; ++i) count += kinds_[i] == kind ? 1 : 0;
    return count;
  }

  std::array<Kind, kMaxArguments> kinds_{};
  std::size_t count_ = 0;
};

}  // namespace anabranch::torch_face

#endif  // ANABRANCH_SRC_TORCH_SCHEMA_H_
