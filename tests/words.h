// Words of messages. A name of one letter is in almost every text; as a word it is not.
#ifndef ANABRANCH_TESTS_WORDS_H_
#define ANABRANCH_TESTS_WORDS_H_

#include <cctype>
#include <string_view>

namespace anabranch {

inline bool IsWordCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// `words` is in `text`, with no letter, digit or '_' right before or after it.
inline bool HasWords(std::string_view text, std::string_view words) {
  for (std::size_t at = text.find(words); at != text.npos; at = text.find(words, at + 1)) {
    const std::size_t end = at + words.size();
    const bool begins = at == 0 || !IsWordCharacter(text[at - 1]);
    if (begins && (end == text.size() || !IsWordCharacter(text[end]))) return true;
  }
  return false;
}

}  // namespace anabranch

#endif  // ANABRANCH_TESTS_WORDS_H_
