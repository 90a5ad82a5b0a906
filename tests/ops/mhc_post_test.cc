#include "anabranch/mhc_post.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "src/tools/harness/harness.h"

namespace anabranch {
namespace {

using harness::Bits;
using harness::CaseTensors;
using harness::Layout;
using harness::Random;
using harness::ReadAll;
using harness::WriteAll;

// The asymmetric Sinkhorn result of operators.md.
constexpr float kRes[16] = {0.592519750f, 0.116562194f, 0.053291302f, 0.237625758f,
                            0.053291301f, 0.077463348f, 0.711326190f, 0.157918157f,
                            0.116562193f, 0.460564612f, 0.077463349f, 0.345408847f,
                            0.237625757f, 0.345408846f, 0.157918159f, 0.259046239f};

struct Call {
  explicit Call(std::int64_t tokens = 1, std::int64_t d = 1)
      : x(static_cast<std::size_t>(tokens * 4 * d)),
        h_out(static_cast<std::size_t>(tokens * d)),
        h_post(static_cast<std::size_t>(tokens * 4)),
        h_res(static_cast<std::size_t>(tokens * 16)),
        y(x.size(), -7.0f) {
    args.x = TensorView(x.data(), DType::kFloat32, {tokens, 4, d});
    args.h_out = TensorView(h_out.data(), DType::kFloat32, {tokens, d});
    args.h_post = TensorView(h_post.data(), DType::kFloat32, {tokens, 4});
    args.h_res = TensorView(h_res.data(), DType::kFloat32, {tokens, 4, 4});
    args.y = TensorView(y.data(), DType::kFloat32, {tokens, 4, d});
  }
  Status Run() {
    Plan plan;
    Status status = Prepare(args, &plan);
    return status.ok() ? plan.Run() : status;
  }
  std::vector<float> x, h_out, h_post, h_res, y;
  MhcPostArgs args;
};

TEST(MhcPostTest, SumsOverTheFirstIndexOfHRes) {
  Call call;
  std::copy_n(kRes, 16, call.h_res.begin());
  call.x = {1, 2, 3, 4};
  call.args.x.data = call.x.data();
  ASSERT_TRUE(call.Run().ok());
  const double want[] = {1.999292, 3.034818, 2.340006, 2.625874};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(call.y[i], want[i], 2e-6);
}

TEST(MhcPostTest, AccumulatesInTheDocumentedOrder) {
  Call call;
  call.x = {1e8f, 1.0f, -1e8f, 3.0f};
  call.args.x.data = call.x.data();
  std::fill(call.h_res.begin(), call.h_res.end(), 1.1f);
  call.h_post = {0.3f, 0.3f, 0.3f, 0.3f};
  call.args.h_post.data = call.h_post.data();
  call.h_out[0] = 0.7f;
  if (!TargetHasFma(SupportedTargets().front())) GTEST_SKIP() << "no target with FMA here";
  ASSERT_TRUE(call.Run().ok());
  float want = 0.3f * 0.7f;
  for (float x : call.x) want = std::fmaf(1.1f, x, want);
  for (float y : call.y) EXPECT_EQ(y, want);
}

TEST(MhcPostTest, MayWriteOverX) {
  Call separate(5, 70);
  Random random(3);
  for (auto* values : {&separate.x, &separate.h_out, &separate.h_post, &separate.h_res}) {
    for (float& v : *values) v = static_cast<float>(random.Normal());
  }
  ASSERT_TRUE(separate.Run().ok());
  const std::vector<float> want = separate.y;
  separate.args.y = separate.args.x;
  ASSERT_TRUE(separate.Run().ok());
  EXPECT_EQ(separate.x, want);
}

TEST(MhcPostTest, RefusesOtherOverlaps) {
  Call call(5, 70);
  call.args.y.data = call.x.data() + 1;
  Status status = call.Run();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("y overlaps x"), std::string::npos) << status.message();
}

TEST(MhcPostTest, NanAndInfinityStayInTheirToken) {
  for (const float bad : {NAN, INFINITY}) {
    Call call(3, 40);
    for (auto* values : {&call.x, &call.h_out, &call.h_post, &call.h_res}) {
      std::fill(values->begin(), values->end(), 0.5f);
    }
    call.x[4 * 40 + 7] = bad;  // token 1, stream 0, element 7
    ASSERT_TRUE(call.Run().ok());
    for (std::size_t k = 0; k < call.y.size(); ++k) {
      const bool hit = k / 160 == 1 && k % 40 == 7;
      EXPECT_EQ(std::isfinite(call.y[k]), !hit) << k;
    }
  }
}

TEST(MhcPostTest, EveryKindOfNanStaysNanInBFloat16) {
  for (const std::uint32_t bits : {0x7fffffffu, 0xffffffffu, 0x7f800001u, 0x7fc00000u}) {
    Call call(1, 40);
    std::vector<std::uint16_t> x(4 * 40, 0x3f80), h_out(40, 0x3f80), y(4 * 40, 0);
    call.args.x = TensorView(x.data(), DType::kBFloat16, {1, 4, 40});
    call.args.h_out = TensorView(h_out.data(), DType::kBFloat16, {1, 40});
    call.args.y = TensorView(y.data(), DType::kBFloat16, {1, 4, 40});
    call.h_res[0] = std::bit_cast<float>(bits);
    x[40] = static_cast<std::uint16_t>(bits >> 16 | 1u);  // lane 1, element 0: also a NaN
    ASSERT_TRUE(call.Run().ok());
    for (std::size_t k = 0; k < y.size(); ++k) {
      const bool nan = k < 40 || k % 40 == 0;
      EXPECT_EQ(std::isnan(ToFloat(BFloat16{y[k]})), nan) << std::hex << bits << " at " << k;
    }
  }
}

TEST(MhcPostTest, SubnormalsAreKept) {
  Call call;
  call.x = {1e-40f, 0, 0, 0};
  call.args.x.data = call.x.data();
  for (int i = 0; i < 4; ++i) call.h_res[static_cast<std::size_t>(5 * i)] = 1;
  ASSERT_TRUE(call.Run().ok());
  EXPECT_EQ(call.y[0], 1e-40f);
  std::uint16_t x[4] = {1, 0x8001, 0x7f, 0};  // bfloat16 subnormals
  std::uint16_t y[4] = {};
  std::uint16_t h_out[1] = {0};
  call.args.x = TensorView(x, DType::kBFloat16, {1, 4, 1});
  call.args.y = TensorView(y, DType::kBFloat16, {1, 4, 1});
  call.args.h_out = TensorView(h_out, DType::kBFloat16, {1, 1});
  ASSERT_TRUE(call.Run().ok());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(y[i], x[i]);
}

TEST(MhcPostTest, NoTokensIsLegal) {
  Call call(0, 8);
  Plan plan;
  ASSERT_TRUE(Prepare(call.args, &plan).ok());
  EXPECT_EQ(plan.info().kernel, "empty");
  EXPECT_TRUE(plan.Run().ok());
}

TEST(MhcPostTest, TokensDoNotDependOnTheirBatch) {
  const OperatorEntry& entry = *FindOperator("mhc_post_backward");
  Random random(5);
  Case all;
  all.seq = 37;
  all.d = 129;
  all.dtype = DType::kBFloat16;
  CaseTensors batch = Allocate(entry, all, Layout::kDense, random);
  FillInputs(entry, all, batch, random);
  ASSERT_TRUE(RunCase(entry, all, batch, Context()).ok());
  Case one = all;
  one.seq = 1;
  for (std::int64_t t : {0, 17, 36}) {
    CaseTensors single = Allocate(entry, one, Layout::kDense, random);
    for (std::size_t k = 0; k < single.specs.size(); ++k) {
      TensorView slice = batch.buffers[k].view;
      slice.data = static_cast<std::byte*>(slice.data) +
                   t * slice.strides[1] * static_cast<std::int64_t>(DTypeSize(slice.dtype));
      slice.sizes[1] = 1;
      if (!single.specs[k].output) WriteAll(single.buffers[k].view, ReadAll(slice));
    }
    ASSERT_TRUE(RunCase(entry, one, single, Context()).ok());
    for (std::size_t k = 0; k < single.specs.size(); ++k) {
      TensorView slice = batch.buffers[k].view;
      slice.data = static_cast<std::byte*>(slice.data) +
                   t * slice.strides[1] * static_cast<std::int64_t>(DTypeSize(slice.dtype));
      slice.sizes[1] = 1;
      if (single.specs[k].output) {
        EXPECT_EQ(Bits(single.buffers[k].view), Bits(slice)) << single.specs[k].name;
      }
    }
  }
}

TEST(MhcPostTest, ErrorsNameArgumentGotAndWanted) {
  const auto message = [](auto change) {
    Call call(2, 8);
    change(call.args);
    const Status status = call.Run();
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(call.y, std::vector<float>(call.y.size(), -7.0f)) << "outputs were touched";
    return status.message();
  };
  EXPECT_EQ(message([](MhcPostArgs& a) { a.x = TensorView(); }),
            "mhc_post: x is absent, expected a tensor");
  EXPECT_EQ(message([](MhcPostArgs& a) { a.h_post.sizes[1] = 3; }),
            "mhc_post: h_post has shape (2, 3), expected (2, 4) to match x");
  EXPECT_EQ(message([](MhcPostArgs& a) { a.h_out.dtype = DType::kFloat16; }),
            "mhc_post: h_out has dtype float16, expected float32 like x");
  EXPECT_EQ(message([](MhcPostArgs& a) { a.h_res.dtype = DType::kBFloat16; }),
            "mhc_post: h_res has dtype bfloat16, expected float32 (coefficients are float32)");
  EXPECT_EQ(message([](MhcPostArgs& a) { a.x.sizes = Dims{8}; }),
            "mhc_post: x has shape (8,), expected [*, n, D]");
  EXPECT_EQ(message([](MhcPostArgs& a) { a.x.sizes[1] = 17; }),
            "mhc_post: x: n is 17, expected 1..16");
  EXPECT_EQ(message([](MhcPostArgs& a) { a.x.sizes[0] = -2; }),
            "mhc_post: x has shape (-2, 4, 8), expected sizes >= 0");
  EXPECT_EQ(message([](MhcPostArgs& a) { a.h_res.sizes[1] = 5; }),
            "mhc_post: h_res has shape (2, 5, 4), expected (2, 4, 4) to match x");
  EXPECT_NE(message([](MhcPostArgs& a) { a.x.sizes[0] = std::int64_t{1} << 60; }).find("2^63"),
            std::string::npos);
}

TEST(MhcPostTest, InfersShapesWithUnknownSizes) {
  MhcPostArgs args;
  args.x = TensorView(nullptr, DType::kBFloat16, {kUnknown, kUnknown, 4, 64});
  args.h_out = TensorView(nullptr, DType::kBFloat16, {2, kUnknown, 64});
  args.h_post = TensorView(nullptr, DType::kFloat32, {kUnknown, 9, 4});
  ASSERT_TRUE(InferMhcPost(&args).ok());
  EXPECT_EQ(args.y.sizes, (Dims{2, 9, 4, 64}));
  EXPECT_EQ(args.y.dtype, DType::kBFloat16);
  args.h_post.sizes[2] = 5;
  args.y = TensorView();
  EXPECT_FALSE(InferMhcPost(&args).ok());

  MhcPostBackwardArgs backward;
  backward.x = TensorView(nullptr, DType::kFloat16, {kUnknown, 3, kUnknown});
  backward.grad_output = TensorView(nullptr, DType::kFloat16, {kUnknown, 3, 10});
  backward.h_out = TensorView(nullptr, DType::kFloat16, {kUnknown, 10});
  backward.h_post = TensorView(nullptr, DType::kFloat32, {kUnknown, 3});
  backward.h_res = TensorView(nullptr, DType::kFloat32, {kUnknown, 9});
  ASSERT_TRUE(InferMhcPostBackward(&backward).ok());
  EXPECT_EQ(backward.grad_x.sizes, (Dims{kUnknown, 3, 10}));
  EXPECT_EQ(backward.grad_h_res.sizes, (Dims{kUnknown, 9}));
  EXPECT_EQ(backward.grad_h_res.dtype, DType::kFloat32);
}

}  // namespace
}  // namespace anabranch
