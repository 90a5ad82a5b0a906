// Large outputs of mhc_post and its backward are written past the caches: from registers where a
// vector is a whole line and rows begin with one, through a chunk of every row elsewhere. Bits are
// those of calls on a few tokens, whose outputs stay in the caches.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anabranch/cpu.h"
#include "anabranch/mhc_post.h"
#include "src/core/parallel.h"
#include "tests/ops/buffer.h"

namespace anabranch {
namespace {

using harness::Random;

constexpr std::int64_t kStreams = 4;
constexpr std::int64_t kFew = 16;  // below the threshold on machines with small caches, too

// Where the rows of an output lie: `pad` elements after each, the first one `offset` elements
// behind the beginning of a line.
struct Rows {
  std::int64_t d, pad, offset;
};
constexpr Rows kRows[] = {{512, 0, 0}, {490, 22, 0}, {507, 0, 1}};

// [tokens, rows, d] BF16 in memory that begins with a line. What lies between rows keeps 0xff.
struct Output {
  Output(std::int64_t tokens, std::int64_t rows, const Rows& where)
      : pitch(where.d + where.pad),
        memory(static_cast<std::size_t>(tokens * rows * pitch + where.offset) * 2 + 128,
               std::byte{0xff}) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    begin = memory.data() + (64 - address % 64) % 64 + where.offset * 2;
    view = TensorView(begin, DType::kBFloat16, {tokens, rows, where.d});
    view.strides = {rows * pitch, pitch, 1};
  }
  // All of it from the first row on.
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(begin),
            static_cast<std::size_t>(view.sizes[0] * view.strides[0]) * 2};
  }
  std::int64_t pitch;
  std::vector<std::byte> memory;
  std::byte* begin;
  TensorView view;
};

TensorView WithoutStreams(const TensorView& view) {
  TensorView v(view.data, view.dtype, {view.sizes[0], view.sizes[2]});
  v.strides = {view.strides[0], view.strides[2]};
  return v;
}

struct Call {
  Call(std::int64_t tokens, const Rows& where)
      : random(5),
        x(DType::kBFloat16, {tokens, kStreams, where.d}, &random, 1),
        grad(DType::kBFloat16, {tokens, kStreams, where.d}, &random, 1),
        h_out(DType::kBFloat16, {tokens, where.d}, &random, 1),
        h_post(DType::kFloat32, {tokens, kStreams}, &random, 1),
        h_res(DType::kFloat32, {tokens, kStreams, kStreams}, &random, 1),
        y(tokens, kStreams, where),
        grad_x(tokens, kStreams, where),
        grad_h_out(tokens, 1, where),
        grad_h_post(DType::kFloat32, {tokens, kStreams}),
        grad_h_res(DType::kFloat32, {tokens, kStreams, kStreams}) {}
  MhcPostArgs Forward(std::int64_t first, std::int64_t count) {
    MhcPostArgs a;
    a.x = SomeTokens(x.View(), first, count);
    a.h_res = SomeTokens(h_res.View(), first, count);
    a.h_out = SomeTokens(h_out.View(), first, count);
    a.h_post = SomeTokens(h_post.View(), first, count);
    a.y = SomeTokens(y.view, first, count);
    return a;
  }
  MhcPostBackwardArgs Backward(std::int64_t first, std::int64_t count) {
    MhcPostBackwardArgs a;
    a.grad_output = SomeTokens(grad.View(), first, count);
    a.x = SomeTokens(x.View(), first, count);
    a.h_res = SomeTokens(h_res.View(), first, count);
    a.h_out = SomeTokens(h_out.View(), first, count);
    a.h_post = SomeTokens(h_post.View(), first, count);
    a.grad_x = SomeTokens(grad_x.view, first, count);
    a.grad_h_res = SomeTokens(grad_h_res.View(), first, count);
    a.grad_h_out = SomeTokens(WithoutStreams(grad_h_out.view), first, count);
    a.grad_h_post = SomeTokens(grad_h_post.View(), first, count);
    return a;
  }
  // Every byte of the outputs, with what lies around their rows.
  std::vector<std::vector<std::byte>> Written() const {
    return {y.memory, grad_x.memory, grad_h_out.memory, grad_h_post.bytes, grad_h_res.bytes};
  }
  void Wipe() {
    for (auto* memory :
         {&y.memory, &grad_x.memory, &grad_h_out.memory, &grad_h_post.bytes, &grad_h_res.bytes}) {
      std::fill(memory->begin(), memory->end(), std::byte{0xff});
    }
  }
  Random random;
  Buffer x, grad, h_out, h_post, h_res;
  Output y, grad_x, grad_h_out;
  Buffer grad_h_post, grad_h_res;
};

class MhcPostStreaming : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    if (StreamingThreshold() > std::int64_t{128} << 20) {
      GTEST_SKIP() << "what is large for so many cores needs gigabytes: run it on fewer (taskset)";
    }
  }
};

TEST_P(MhcPostStreaming, HasTheBitsOfFewTokens) {
  Context context;
  context.set_target(GetParam());
  for (const Rows& where : kRows) {
    SCOPED_TRACE(std::to_string(where.d) + " offset " + std::to_string(where.offset));
    const std::int64_t tokens = StreamingThreshold() / (kStreams * where.d * 2) + 3;
    Call call(tokens, where);
    bool streaming = false;
    MustRun(call.Forward(0, tokens), context, &streaming);
    EXPECT_TRUE(streaming);
    MustRun(call.Backward(0, tokens), context, &streaming);
    EXPECT_TRUE(streaming);
    const auto streamed = call.Written();
    call.Wipe();
    for (std::int64_t first = 0; first < tokens; first += kFew) {
      const std::int64_t count = std::min(kFew, tokens - first);
      MustRun(call.Forward(first, count), context, &streaming);
      EXPECT_FALSE(streaming);
      MustRun(call.Backward(first, count), context, &streaming);
      EXPECT_FALSE(streaming);
      if (HasFailure()) return;
    }
    EXPECT_TRUE(streamed == call.Written());
  }
}

TEST_P(MhcPostStreaming, MayWriteOverWhatItReads) {
  Context context;
  context.set_target(GetParam());
  for (const Rows& where : {kRows[0], kRows[1]}) {
    const std::int64_t tokens = StreamingThreshold() / (kStreams * where.d * 2) + 3;
    Call call(tokens, where);
    // What is read lies where it will be written.
    Output x(tokens, kStreams, where), grad(tokens, kStreams, where);
    for (auto [from, to] : {std::pair{call.x.View(), x.view}, {call.grad.View(), grad.view}}) {
      for (std::int64_t t = 0; t < tokens * kStreams; ++t) {
        std::copy_n(static_cast<std::byte*>(from.data) + t * where.d * 2, where.d * 2,
                    static_cast<std::byte*>(to.data) + t * (where.d + where.pad) * 2);
      }
    }
    MustRun(call.Forward(0, tokens), context);
    MustRun(call.Backward(0, tokens), context);
    MhcPostBackwardArgs backward = call.Backward(0, tokens);
    backward.grad_output = backward.grad_x = grad.view;
    MustRun(backward, context);
    EXPECT_TRUE(grad.bytes() == call.grad_x.bytes());
    MhcPostArgs forward = call.Forward(0, tokens);
    forward.x = forward.y = x.view;
    MustRun(forward, context);
    EXPECT_TRUE(x.bytes() == call.y.bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, MhcPostStreaming, testing::ValuesIn(SupportedTargets()),
                         [](const auto& each) { return std::string(TargetName(each.param)); });

}  // namespace
}  // namespace anabranch
