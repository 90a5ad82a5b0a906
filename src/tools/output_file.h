// A file that appears whole or not at all.
#ifndef ANABRANCH_SRC_TOOLS_OUTPUT_FILE_H_
#define ANABRANCH_SRC_TOOLS_OUTPUT_FILE_H_

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "src/tools/commands.h"

namespace anabranch::tools {

// The constructor finds out at once, before the work, that a path cannot be written; Commit writes
// a temporary file beside it and renames that into place. What is there already and is no regular
// file (a pipe, /dev/null) is written directly. UsageError names the path.
class OutputFile {
 public:
  explicit OutputFile(std::string path) : path_(std::move(path)), part_(path_ + ".XXXXXX") {
    struct stat there {};
    if (stat(path_.c_str(), &there) == 0) {
      if (S_ISDIR(there.st_mode)) Fail(EISDIR);
      direct_ = !S_ISREG(there.st_mode);
      if (access(path_.c_str(), W_OK) != 0) Fail(errno);
    }
    if (direct_) return;
    // Nothing is left behind should the program be stopped before Commit.
    std::string trial = part_;
    const int file = mkstemp(trial.data());
    if (file < 0) Fail(errno);
    close(file);
    unlink(trial.c_str());
  }

  void Commit(const std::string& text) {
    const int file = direct_ ? open(path_.c_str(), O_WRONLY | O_CLOEXEC) : mkstemp(part_.data());
    if (file < 0) Fail(errno);
    if (!direct_) fchmod(file, 0666 & ~Umask());
    const int error = Write(file, text);
    const int closed = close(file) == 0 ? 0 : errno;
    const int first = error != 0 ? error : closed;
    if (direct_ && first == 0) return;
    if (first == 0 && std::rename(part_.c_str(), path_.c_str()) == 0) return;
    const int reason = first != 0 ? first : errno;
    if (!direct_) unlink(part_.c_str());
    Fail(reason);
  }

 private:
  [[noreturn]] void Fail(int error) const {
    throw UsageError{"cannot write " + path_ + ": " + std::strerror(error)};
  }

  static mode_t Umask() {
    const mode_t mask = umask(0);
    umask(mask);
    return mask;
  }

  // 0 or an errno.
  static int Write(int file, const std::string& text) {
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t count = write(file, text.data() + done, text.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno;
      done += static_cast<std::size_t>(count);
    }
    return 0;
  }

  std::string path_;
  std::string part_;
  bool direct_ = false;
};

}  // namespace anabranch::tools

#endif  // ANABRANCH_SRC_TOOLS_OUTPUT_FILE_H_
