// Offsets, element counts and sizes that 32 bits do not hold.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "tests/ops/far_apart.h"
#include "tests/ops/known_faults.h"

namespace anabranch {
namespace {

using harness::Bits;
using harness::CaseTensors;
using harness::Layout;
using harness::Random;

// Two tokens more than 2^31 elements apart: offsets that 32 bits do not hold.
TEST_P(KnownFaults, OffsetsBeyond32Bits) {
  const Case c = Small(2);
  Random random(86);
  CaseTensors dense = Allocate(entry(), c, Layout::kDense, random);
  FillInputs(entry(), c, dense, random);
  ASSERT_TRUE(RunCase(entry(), c, dense, Context()).ok());
  const FarApart far(dense);
  if (!far.ok()) GTEST_SKIP() << "the system reserves no such address range";
  Plan plan;
  ASSERT_TRUE(entry().prepare(c, far.views(), &plan, Context()).ok());
  ASSERT_TRUE(plan.Run().ok());
  for (std::size_t k = 0; k < far.views().size(); ++k) {
    if (!dense.specs[k].output) continue;
    EXPECT_TRUE(Bits(far.views()[k]) == Bits(dense.buffers[k].view)) << dense.specs[k].name;
  }
}

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
int CountingDimension(const TensorSpec& two, const TensorSpec& three) {
  for (int i = 0; i < two.sizes.rank; ++i) {
    if (two.sizes[i] != three.sizes[i]) return i;
  }
  return -1;
}

class SlowKnownFaults : public KnownFaults {};
INSTANTIATE_TEST_SUITE_P(Table, SlowKnownFaults, testing::ValuesIn(OperatorNames()),
                         [](const auto& param_info) { return param_info.param; });

// More than 2^31 elements in a tensor. All tokens are the same but the last one: every token that
// can be told from the others has the bits that it has in a call of two.
TEST_P(SlowKnownFaults, MoreElementsThan31Bits) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "minutes, and memory that no sanitizer watches: OffsetsBeyond32Bits runs";
#endif
  Case c = Small(2);
  c.d = 1024;
  Case three = c;
  three.seq = 3;
  Random random(88);
  CaseTensors two = Allocate(entry(), c, Layout::kDense, random);
  FillInputs(entry(), c, two, random);
  ASSERT_TRUE(RunCase(entry(), c, two, Context()).ok());
  const std::vector<TensorSpec> longer = entry().tensors(three);
  std::int64_t row = 1;
  std::vector<int> dimension;
  for (std::size_t k = 0; k < longer.size(); ++k) {
    dimension.push_back(CountingDimension(two.specs[k], longer[k]));
    if (dimension.back() >= 0) row = std::max(row, two.buffers[k].view.numel() / 2);
  }
  const std::int64_t tokens = (std::int64_t{1} << 31) / row + 3;
  std::vector<std::unique_ptr<Tokens>> memory;
  std::vector<TensorView> views = two.Views();
  const auto like = [&](std::size_t k, std::int64_t token) {
    TensorView view = two.buffers[k].view;
    view.data = static_cast<std::byte*>(view.data) +
                (token == tokens - 1 ? 1 : 0) * view.strides[dimension[k]] *
                    static_cast<std::int64_t>(DTypeSize(view.dtype));
    view.sizes[dimension[k]] = 1;
    return view;
  };
  for (std::size_t k = 0; k < views.size(); ++k) {
    if (dimension[k] < 0) continue;
    memory.push_back(std::make_unique<Tokens>(views[k], dimension[k], tokens));
    if (!memory.back()->ok()) GTEST_SKIP() << "the system maps no such address range";
    views[k] = memory.back()->view();
    memory.back()->ForEachRow(dimension[k], [&](std::int64_t token, const TensorView& to) {
      if (two.specs[k].output) {
        harness::FillBytes(to, std::byte{0x5a});
      } else {
        harness::WriteAll(to, harness::ReadAll(like(k, token)));
      }
    });
  }
  Plan plan;
  const Status status = entry().prepare(c, views, &plan, Context().set_threads(2));
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(plan.Run().ok());
  std::size_t next = 0;
  for (std::size_t k = 0; k < views.size(); ++k) {
    if (dimension[k] < 0) continue;
    const Tokens& all = *memory[next++];
    if (!two.specs[k].output) continue;
    all.ForEachRow(dimension[k], [&](std::int64_t token, const TensorView& got) {
      ASSERT_EQ(Bits(got), Bits(like(k, token))) << two.specs[k].name << " of token " << token;
    });
  }
}

}  // namespace
}  // namespace anabranch
