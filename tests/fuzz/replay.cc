// Runs a fuzz target without a fuzzer: on files, on folders of files, on pseudo-random bytes.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<std::uint8_t> Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "replay: cannot read %s\n", path.c_str());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void Replay(const std::filesystem::path& path) {
  const std::vector<std::uint8_t> bytes = Read(path);
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

void RunRandom(int count) {
  std::uint64_t state = 0x9e3779b97f4a7c15u;
  std::vector<std::uint8_t> bytes;
  for (int i = 0; i < count; ++i) {
    bytes.resize(static_cast<std::size_t>(i % 300));
    for (std::uint8_t& byte : bytes) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<std::uint8_t>(state >> 56);
    }
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  int inputs = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--random") == 0 && i + 1 < argc) {
      const int count = std::atoi(argv[++i]);
      RunRandom(count);
      inputs += count;
      continue;
    }
    if (!std::filesystem::is_directory(argv[i])) {
      Replay(argv[i]);
      ++inputs;
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      Replay(entry.path());
      ++inputs;
    }
  }
  if (inputs == 0) {
    std::fprintf(stderr, "usage: %s [--random COUNT] [FILE or FOLDER]...\n", argv[0]);
    return 2;
  }
  std::fprintf(stderr, "replay: %d inputs, no fault\n", inputs);
  return 0;
}
