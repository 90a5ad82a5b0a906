// What a fuzzer's bytes mean: a stream of small choices that never ends (zeros follow), so that
// every input is a valid test and the shortest one is the plainest. After what its bytes spell out
// an input of more than a few goes on with up to seven rounds of choices drawn from a generator
// that all its bytes seed: running one input costs a fuzzer as much as a hundred calls.
#ifndef ANABRANCH_TESTS_FUZZ_INPUT_H_
#define ANABRANCH_TESTS_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace anabranch::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : next_(data), end_(data + size) {}

  // Pseudo-random choices without an end, others for every input.
  static Input Drawn(const std::uint8_t* data, std::size_t size) {
    Input drawn(nullptr, 0);
    drawn.state_ = Hash(data, size);
    drawn.drawn_ = true;
    return drawn;
  }
  // How many rounds of them follow the bytes.
  static int Rounds(const std::uint8_t* data, std::size_t size) {
    return size < 8 ? 0 : static_cast<int>(Hash(data, size) >> 20 & 7);
  }

  bool drawn() const { return drawn_; }
  bool empty() const { return next_ == end_ && !drawn_; }
  std::uint8_t Byte() {
    if (next_ != end_) return *next_++;
    if (!drawn_) return 0;
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint8_t>(state_ >> 56);
  }
  bool Chance(int in_256) { return Byte() >= 256 - in_256; }  // never for zeros
  // Uniform enough in [0, bound), bound <= 65536.
  int Below(int bound) {
    const int low = Byte();
    return bound <= 256 ? low % bound : (low + 256 * Byte()) % bound;
  }
  template <class T, std::size_t N>
  const T& Pick(const T (&from)[N]) {
    return from[Below(static_cast<int>(N))];
  }
  // Any 64 bits, most often near the edges of what 64-bit code gets wrong.
  std::int64_t Wide() {
    constexpr std::int64_t kMax = INT64_MAX;
    static constexpr std::int64_t kEdges[] = {
        0,         1,           -1,        2,         -2,           3,
        INT32_MAX, INT32_MIN,   1 << 30,   kMax,      -kMax,        -kMax - 1,
        kMax - 1,  kMax / 2,    kMax / 4,  kMax / 16, kMax / 8,     kMax - 7,
        255,       256,         1LL << 31, 1LL << 32, 1LL << 33,    1LL << 40,
        1LL << 61, 1LL << 62,   65536,     4096,      3037000500LL, 2147483659LL,
        -65536LL,  1000000007LL};
    const int how = Below(40);
    if (how < 32) return kEdges[how];
    std::uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | Byte();
    return static_cast<std::int64_t>(bits);
  }
  double Real(double usual) {
    if (!Chance(24)) return usual;
    static const double kEdges[] = {0,    -0.0, -1,  1e-6,  1e300,     -1e300,     1e-320,
                                    1e38, 1e39, 0.5, 1e-45, kInfinity, -kInfinity, kNaN};
    return Pick(kEdges);
  }

 private:
  static std::uint64_t Hash(const std::uint8_t* data, std::size_t size) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (std::size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
  }
  static constexpr double kInfinity = __builtin_huge_val();
  static constexpr double kNaN = __builtin_nan("");
  const std::uint8_t* next_;
  const std::uint8_t* end_;
  std::uint64_t state_ = 0;
  bool drawn_ = false;
};

// A broken promise of the library: what the fuzzers report besides what the sanitizers see.
[[noreturn]] inline void Broken(const std::string& what) {
  std::fprintf(stderr, "BROKEN: %s\n", what.c_str());
  std::abort();
}

// Calls into the library so far; every target prints its own count at the end of the process.
inline std::uint64_t calls = 0;

inline void CountCalls(const char* target) {
  static const char* name = nullptr;
  if (name != nullptr) return;
  name = target;
  std::atexit([] {
    std::fprintf(stderr, "calls into the library (%s): %llu\n", name,
                 static_cast<unsigned long long>(calls));
  });
}

}  // namespace anabranch::fuzz

#endif  // ANABRANCH_TESTS_FUZZ_INPUT_H_
