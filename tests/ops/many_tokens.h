// Calls with so many tokens that 31 bits do not count their elements, without the memory for them.
#ifndef ANABRANCH_TESTS_OPS_MANY_TOKENS_H_
#define ANABRANCH_TESTS_OPS_MANY_TOKENS_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "src/tools/harness/harness.h"

namespace anabranch {

// A tensor of so many tokens that no machine need have the memory: the first and the last block of
// tokens are memory of their own, all blocks between them are one and the same.
class Tokens {
 public:
  // `like`: the same tensor of two tokens. The tokens' rows lie one behind the other.
  Tokens(const TensorView& like, int dimension, std::int64_t tokens) : view_(like) {
    std::int64_t row = 1;
    for (int i = like.rank() - 1; i >= 0; --i) {
      if (i == dimension) continue;
      view_.strides[i] = row;
      row *= like.sizes[i];
    }
    view_.sizes[dimension] = tokens;
    view_.strides[dimension] = row;
    const auto row_bytes = static_cast<std::size_t>(row) * DTypeSize(like.dtype);
    const std::size_t block = row_bytes * 16384;  // whole pages
    bytes_ = (row_bytes * static_cast<std::size_t>(tokens) + block - 1) / block * block;
    const int file = memfd_create("tokens", 0);
    if (file < 0 || ftruncate(file, static_cast<off_t>(3 * block)) != 0) return;
    void* all =
        mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ok_ = all != MAP_FAILED;
    view_.data = ok_ ? all : nullptr;
    for (std::size_t at = 0; ok_ && at < bytes_; at += block) {
      const std::size_t which = at == 0 ? 0 : at + block == bytes_ ? 2 : 1;
      ok_ = mmap(static_cast<std::byte*>(all) + at, block, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(which * block)) != MAP_FAILED;
    }
    close(file);
    block_tokens_ = 16384;
  }
  ~Tokens() {
    if (view_.data != nullptr) munmap(view_.data, bytes_);
  }
  Tokens(const Tokens&) = delete;
  Tokens& operator=(const Tokens&) = delete;

  bool ok() const { return ok_; }
  const TensorView& view() const { return view_; }

  // Calls f(token, row) for all rows that have memory of their own.
  template <class Row>
  void ForEachRow(int dimension, const Row& f) const {
    const std::int64_t count = view_.sizes[dimension];
    const std::int64_t last = (count - 1) / block_tokens_ * block_tokens_;
    for (std::int64_t token = 0; token < count; ++token) {
      if (token == std::min(2 * block_tokens_, last)) token = last;
      TensorView row = view_;
      row.data = static_cast<std::byte*>(row.data) +
                 token * row.strides[dimension] * static_cast<std::int64_t>(DTypeSize(row.dtype));
      row.sizes[dimension] = 1;
      f(token, row);
    }
  }

 private:
  TensorView view_;
  std::size_t bytes_ = 0;
  std::int64_t block_tokens_ = 0;
  bool ok_ = false;
};

// The dimension that counts tokens: where the shapes of two and of three tokens differ.
inline int CountingDimension(const TensorSpec& two, const TensorSpec& three) {
  for (int i = 0; i < two.sizes.rank; ++i) {
    if (two.sizes[i] != three.sizes[i]) return i;
  }
  return -1;
}

// A call of more than 2^31 elements in its largest tensors. All tokens are the same but the last
// one: every token that can be told from the others must have the bits that it has in a call of
// two.
class ManyTokens {
 public:
  // `c` has two tokens.
  ManyTokens(const OperatorEntry& entry, const Case& c) {
    Case three = c;
    three.seq = 3;
    harness::Random random(88);
    two_ = Allocate(entry, c, harness::Layout::kDense, random);
    FillInputs(entry, c, two_, random);
    const Status status = RunCase(entry, c, two_, Context());
    EXPECT_TRUE(status.ok()) << status.message();
    const std::vector<TensorSpec> longer = entry.tensors(three);
    std::int64_t row = 1;
    for (std::size_t k = 0; k < longer.size(); ++k) {
      dimension_.push_back(CountingDimension(two_.specs[k], longer[k]));
      if (dimension_.back() >= 0) row = std::max(row, two_.buffers[k].view.numel() / 2);
    }
    tokens_ = (std::int64_t{1} << 31) / row + 3;
    for (std::size_t k = 0; k < longer.size(); ++k) {
      TensorView view = two_.buffers[k].view;
      memory_.emplace_back();
      if (dimension_[k] >= 0) {
        memory_[k] = std::make_unique<Tokens>(view, dimension_[k], tokens_);
        ok_ = ok_ && memory_[k]->ok();
        view = memory_[k]->view();
      }
      views_.push_back(view);
    }
    if (ok_) Fill();
  }

  bool ok() const { return ok_; }  // the system maps such address ranges
  const std::vector<TensorView>& views() const { return views_; }

  void ExpectRight() const {
    for (std::size_t k = 0; k < views_.size(); ++k) {
      if (dimension_[k] < 0 || !two_.specs[k].output) continue;
      memory_[k]->ForEachRow(dimension_[k], [&](std::int64_t token, const TensorView& got) {
        ASSERT_EQ(harness::Bits(got), harness::Bits(Like(k, token)))
            << two_.specs[k].name << " of token " << token;
      });
    }
  }

 private:
  void Fill() {
    for (std::size_t k = 0; k < views_.size(); ++k) {
      if (dimension_[k] < 0) continue;
      memory_[k]->ForEachRow(dimension_[k], [&](std::int64_t token, const TensorView& to) {
        if (two_.specs[k].output) {
          harness::FillBytes(to, std::byte{0x5a});
        } else {
          harness::WriteAll(to, harness::ReadAll(Like(k, token)));
        }
      });
    }
  }

  // That token in the call of two.
  TensorView Like(std::size_t k, std::int64_t token) const {
    TensorView view = two_.buffers[k].view;
    view.data = static_cast<std::byte*>(view.data) +
                (token == tokens_ - 1 ? 1 : 0) * view.strides[dimension_[k]] *
                    static_cast<std::int64_t>(DTypeSize(view.dtype));
    view.sizes[dimension_[k]] = 1;
    return view;
  }

  harness::CaseTensors two_;
  std::vector<int> dimension_;  // the one that counts tokens, or -1
  std::vector<std::unique_ptr<Tokens>> memory_;
  std::vector<TensorView> views_;
  std::int64_t tokens_ = 0;
  bool ok_ = true;
};

}  // namespace anabranch

#endif  // ANABRANCH_TESTS_OPS_MANY_TOKENS_H_
