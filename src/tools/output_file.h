// A file that appears whole or not at all.
#ifndef ANABRANCH_SRC_TOOLS_OUTPUT_FILE_H_
#define ANABRANCH_SRC_TOOLS_OUTPUT_FILE_H_

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "src/tools/commands.h"

namespace anabranch::tools {

// Opens `path`.part beside the wanted file at once, so that a path that cannot be written is found
// before the work; Commit writes it and renames it into place. UsageError names the path.
class OutputFile {
 public:
  explicit OutputFile(std::string path) : path_(std::move(path)), part_(path_ + ".part") {
    file_ = std::fopen(part_.c_str(), "w");
    if (file_ == nullptr) Fail();
  }
  ~OutputFile() {
    if (file_ != nullptr) std::fclose(file_);
    if (!committed_) unlink(part_.c_str());
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void Commit(const std::string& text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), file_) == text.size();
    const bool closed = std::fclose(file_) == 0;
    file_ = nullptr;
    if (!written || !closed || std::rename(part_.c_str(), path_.c_str()) != 0) Fail();
    committed_ = true;
  }

 private:
  [[noreturn]] void Fail() const {
    throw UsageError{"cannot write " + path_ + ": " + std::strerror(errno)};
  }

  std::string path_;
  std::string part_;
  std::FILE* file_ = nullptr;
  bool committed_ = false;
};

}  // namespace anabranch::tools

#endif  // ANABRANCH_SRC_TOOLS_OUTPUT_FILE_H_
