// Progress of long work on stderr: one redrawn line on a terminal, a line every five seconds
// elsewhere, nothing at all for work that is done within a second.
#ifndef ANABRANCH_SRC_TOOLS_PROGRESS_H_
#define ANABRANCH_SRC_TOOLS_PROGRESS_H_

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace anabranch::tools {

class Progress {
 public:
  explicit Progress(std::string what) : what_(std::move(what)), terminal_(isatty(2) != 0) {}
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of `total` in [0, 1]; cheap enough to call often.
  void Update(double fraction, const std::string& detail) {
    const auto now = std::chrono::steady_clock::now();
    const double since_start = std::chrono::duration<double>(now - start_).count();
    const double since_last = std::chrono::duration<double>(now - last_).count();
    if (since_start < 1 || since_last < (terminal_ ? 0.1 : 5.0)) return;
    last_ = now;
    const int percent = static_cast<int>(fraction * 100);
    if (!terminal_) {
      std::fprintf(stderr, "%s: %d %% %s\n", what_.c_str(), percent, detail.c_str());
      return;
    }
    const std::string bar(static_cast<std::size_t>(percent / 4), '#');
    std::fprintf(stderr, "\r\033[K%s [%-25s] %3d %% %s", what_.c_str(), bar.c_str(), percent,
                 detail.c_str());
    drawn_ = true;
  }

  void Clear() {
    if (drawn_) std::fprintf(stderr, "\r\033[K");
    drawn_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = {};
};

}  // namespace anabranch::tools

#endif  // ANABRANCH_SRC_TOOLS_PROGRESS_H_
