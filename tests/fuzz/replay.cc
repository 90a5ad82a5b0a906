// Runs a fuzz target without a fuzzer: on files, on folders of files, on pseudo-random bytes.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
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

// The input that runs, for the handler of signals that end the program.
std::vector<std::uint8_t> current;
std::uint64_t current_seed = 0;
int current_index = 0;

void KeepInput(int signal) {
  char name[64];
  std::snprintf(name, sizeof(name), "crash-%llu-%d", static_cast<unsigned long long>(current_seed),
                current_index);
  const int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0 && write(file, current.data(), current.size()) >= 0) {
    std::fprintf(stderr, "replay: the input is in %s\n", name);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// The same inputs for the same seed, on every machine.
void RunRandom(std::uint64_t seed, int count) {
  for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, KeepInput);
  std::uint64_t state = 0x9e3779b97f4a7c15u * (seed + 1);
  current_seed = seed;
  for (int i = 0; i < count; ++i) {
    current_index = i;
    current.resize(static_cast<std::size_t>(i % 300));
    for (std::uint8_t& byte : current) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<std::uint8_t>(state >> 56);
    }
    LLVMFuzzerTestOneInput(current.data(), current.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  int inputs = 0;
  std::uint64_t seed = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
      continue;
    }
    if (std::strcmp(argv[i], "--random") == 0 && i + 1 < argc) {
      const int count = std::atoi(argv[++i]);
      RunRandom(seed, count);
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
    std::fprintf(stderr, "usage: %s [--seed SEED] [--random COUNT] [FILE or FOLDER]...\n", argv[0]);
    return 2;
  }
  std::fprintf(stderr, "replay: %d inputs, no fault\n", inputs);
  return 0;
}
