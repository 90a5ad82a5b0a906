// Walks over the tokens of the work items that a thread takes so that while one token, in cache, is
// passed a second time, the next one is read from memory, and what comes after it is fetched ahead:
// the memory is busy at an even pace, over the end of an item as well.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_ROW_PIPE_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_ROW_PIPE_H_

#include <cstddef>
#include <cstdint>

#include "src/kernels/attn_residual.h"
#include "src/ops/attn_res/sources.h"

namespace anabranch {

// A token and the work item it belongs to.
struct PipeToken {
  std::int64_t index = -1;
  std::int64_t item = -1;
  bool present() const { return index >= 0; }
};

// The tokens of one work item after the other. `take()` gives an item, `items` or more when there
// is none left; item i has the tokens [start(i), start(i + 1)).
template <class Take, class Start>
class TokenStream {
 public:
  TokenStream(std::int64_t items, const Take& take, const Start& start)
      : items_(items), take_(take), start_(start) {}

  PipeToken Next() {
    while (token_ == end_) {
      if (item_ >= items_) return {};
      item_ = take_();
      if (item_ >= items_) return {};
      token_ = start_(item_);
      end_ = start_(item_ + 1);
    }
    return {token_++, item_};
  }

 private:
  std::int64_t items_;
  const Take& take_;
  const Start& start_;
  std::int64_t item_ = -1, token_ = 0, end_ = 0;
};

template <class Stream>
class RowPipe {
 public:
  // Rows that are dense along D. The first step reads a token and has none in cache, the last one
  // has one in cache and reads none.
  RowPipe(const Sources& sources, Stream stream) : sources_(sources), stream_(stream) {
    Fill(read_);
    Fill(next_);
  }

  bool done() const { return !read().present() && !cached().present(); }
  PipeToken cached() const { return steps_[cached_].token; }
  PipeToken read() const { return steps_[read_].token; }

  void Advance() {
    const int free = cached_;
    cached_ = read_;
    read_ = next_;
    next_ = free;
    Fill(next_);
  }

  // Rows from element k of the token in cache, of the one that is read and of the one after it
  // (again those that are read if it is the last one). Valid until the next call of the same
  // function or of Advance().
  const void* const* CachedRows(std::int64_t k) { return Shift(steps_[cached_], k); }
  const void* const* ReadRows(std::int64_t k) { return Shift(steps_[read_], k); }
  const void* const* NextRows(std::int64_t k) {
    Step& next = steps_[next_];
    return next.token.present() ? Shift(next, k) : ReadRows(k);
  }

 private:
  struct Step {
    PipeToken token;
    const void* rows[kMaxSources];
    const void* shifted[kMaxSources];
  };

  void Fill(int step) {
    Step& s = steps_[step];
    s.token = stream_.Next();
    if (s.token.present()) sources_.Rows(s.token.index, s.rows);
  }

  const void* const* Shift(Step& step, std::int64_t k) {
    if (k == 0) return step.rows;
    const std::int64_t bytes = k * static_cast<std::int64_t>(sources_.element());
    for (int l = 0; l < sources_.count(); ++l) {
      step.shifted[l] = static_cast<const std::byte*>(step.rows[l]) + bytes;
    }
    return step.shifted;
  }

  const Sources& sources_;
  Stream stream_;
  Step steps_[3];
  int cached_ = 0, read_ = 1, next_ = 2;  // of steps_
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_ROW_PIPE_H_
