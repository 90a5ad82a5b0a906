// Real input for the examples: the bytes of a text file as a residual stream.
#ifndef ANABRANCH_EXAMPLES_CPP_TEXT_STREAM_H_
#define ANABRANCH_EXAMPLES_CPP_TEXT_STREAM_H_

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

// The first `most` bytes of a file; ends the program with a message if it cannot be read.
inline std::string ReadText(const char* path, std::size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file && text.empty()) {
    std::fprintf(stderr, "cannot read %s, expected a text file\n", path);
    std::exit(2);
  }
  if (text.size() > most) text.resize(most);
  return text;
}

// A fixed embedding: `key` (a byte and a place) hashed to a value in (-1.7, 1.7), variance 1.
inline float Embed(std::uint64_t key) {
  std::uint64_t z = key * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<float>((static_cast<double>(z >> 11) * 0x1p-53 - 0.5) * std::sqrt(12.0));
}

#endif  // ANABRANCH_EXAMPLES_CPP_TEXT_STREAM_H_
