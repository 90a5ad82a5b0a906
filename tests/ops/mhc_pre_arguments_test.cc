// Arguments of mhc_pre and mhc_pre_sinkhorn: what is refused and how, workspaces, shape inference.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "src/tools/harness/harness.h"
#include "tests/ops/mhc_pre_call.h"

namespace anabranch {
namespace {

using harness::CaseTensors;
using harness::Layout;
using harness::Random;

// For n = 4 both n! and n*n + 2n are 24, and n! + 2n is 32: the form is never told by F.
TEST(MhcPreTest, TheFormIsAnAttribute) {
  PreCall call;
  call.pre.residual = Residual::kPermutation;
  call.pre.h_res = TensorView(call.h_res.data(), DType::kFloat32, {1, 24});
  EXPECT_EQ(PreCall::Run(call.pre).message(),
            "mhc_pre: phi has shape (24, 32), expected (32, 32) to match x and the residual form");
}

TEST(MhcPreTest, ErrorsNameArgumentGotAndWanted) {
  const auto message = [](auto change) {
    PreCall call(2, 8);
    change(call.pre);
    const Status status = PreCall::Run(call.pre);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(call.h_in, std::vector<float>(call.h_in.size(), -7.0f)) << "outputs were touched";
    return status.message();
  };
  EXPECT_EQ(message([](MhcPreArgs& a) { a.phi.sizes[0] = 23; }),
            "mhc_pre: phi has shape (23, 32), expected (24, 32) to match x and the residual form");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.alpha.sizes[0] = 2; }),
            "mhc_pre: alpha has shape (2,), expected (3,) to match the residual form");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.h_mix = TensorView(); }),
            "mhc_pre: h_mix is absent, expected all of inv_rms, h_mix and h_pre or none of them");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.options.pre_eps = -1; }),
            "mhc_pre: options.pre_eps is -1, expected a finite number >= 0");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.options.norm_eps = NAN; }),
            "mhc_pre: options.norm_eps is nan, expected a finite number >= 0");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.options.op_impl_mode = 2; }),
            "mhc_pre: options.op_impl_mode is 2, expected 0..1");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.options.op_impl_mode = -1; }),
            "mhc_pre: options.op_impl_mode is -1, expected 0..1");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.options.post_multiplier = INFINITY; }),
            "mhc_pre: options.post_multiplier is inf, expected a finite number");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.residual = Residual::kNone; }),
            "mhc_pre: h_res has shape (2, 4, 4), expected none (there is no residual part)");
  EXPECT_EQ(message([](MhcPreArgs& a) { a.residual = static_cast<Residual>(9); }),
            "mhc_pre: residual is 9, expected 0..2");
  EXPECT_EQ(message([](MhcPreArgs& a) {
              a.residual = Residual::kPermutation;
              a.x.sizes[1] = 6;
            }),
            "mhc_pre: x: n (permutation form) is 6, expected 1..5");
  EXPECT_NE(message([](MhcPreArgs& a) { a.h_in.data = a.x.data; }).find("h_in overlaps x"),
            std::string::npos);
}

TEST(MhcPreSinkhornTest, RefusesBadIterationsAndCaches) {
  const auto message = [](auto change) {
    PreCall call(2, 8);
    change(call.fused);
    return PreCall::Run(call.fused).message();
  };
  EXPECT_EQ(message([](MhcPreSinkhornArgs& a) { a.options.num_iters = 0; }),
            "mhc_pre_sinkhorn: options.num_iters is 0, expected 1..1000000");
  EXPECT_EQ(message([](MhcPreSinkhornArgs& a) {
              a.options.clamp_low = 1;
              a.options.clamp_high = -1;
            }),
            "mhc_pre_sinkhorn: options.clamp is (1.000000, -1.000000), expected low <= high");
  EXPECT_EQ(message([](MhcPreSinkhornArgs& a) {
              a.sum_out = TensorView(a.x.data, DType::kFloat32, {40, 2, 4});
            }),
            "mhc_pre_sinkhorn: norm_out is absent, expected all of sum_out and norm_out or none "
            "of them");
  EXPECT_EQ(message([](MhcPreSinkhornArgs& a) { a.h_pre = TensorView(); }),
            "mhc_pre_sinkhorn: h_pre is absent, expected all of h_pre, h_mix and inv_rms or none "
            "of them");
}

TEST(MhcPreTest, WorkspacesThatAreTooSmallAreRefused) {
  PreCall call(40, 8);
  Plan plan;
  ASSERT_TRUE(Prepare(call.pre, &plan).ok());
  ASSERT_GT(plan.workspace_bytes(), 0u);
  alignas(64) std::byte small[64];
  EXPECT_EQ(plan.Run(small, plan.workspace_bytes() - 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(call.h_in[0], -7.0f);
}

// The workspace does not grow with the number of tokens once there are tiles.
TEST(MhcPreTest, WorkspaceIsBounded) {
  for (const char* name : {"mhc_pre", "mhc_pre_backward"}) {
    const OperatorEntry& entry = *FindOperator(name);
    std::size_t bytes[2];
    for (int k = 0; k < 2; ++k) {
      Random random(9);
      Case c;
      c.seq = k == 0 ? 1000 : 4000;
      CaseTensors tensors = Allocate(entry, c, Layout::kDense, random);
      Plan plan;
      ASSERT_TRUE(entry.prepare(c, tensors.Views(), &plan, Context().set_threads(2)).ok());
      bytes[k] = plan.workspace_bytes();
    }
    EXPECT_EQ(bytes[0], bytes[1]) << name;
  }
}

TEST(MhcPreTest, InfersShapesWithUnknownSizes) {
  MhcPreArgs args;
  args.x = TensorView(nullptr, DType::kBFloat16, {kUnknown, 4, kUnknown});
  args.phi = TensorView(nullptr, DType::kFloat32, {24, kUnknown});
  args.alpha = TensorView(nullptr, DType::kFloat32, {3});
  args.bias = TensorView(nullptr, DType::kFloat32, {24});
  args.gamma = TensorView(nullptr, DType::kFloat32, {4, 64});
  args.h_mix = TensorView(nullptr, DType::kFloat32, {9, kUnknown});
  ASSERT_TRUE(InferMhcPre(&args).ok());
  EXPECT_EQ(args.h_in.sizes, (Dims{9, 64}));
  EXPECT_EQ(args.h_in.dtype, DType::kBFloat16);
  EXPECT_EQ(args.h_res.sizes, (Dims{9, 4, 4}));
  EXPECT_EQ(args.inv_rms.sizes, (Dims{9}));
  MhcPreSinkhornArgs fused;
  fused.x = TensorView(nullptr, DType::kFloat16, {2, 3, 4, 16});
  fused.phi = TensorView(nullptr, DType::kFloat32, {24, 64});
  fused.alpha = args.alpha;
  fused.bias = args.bias;
  fused.sum_out = TensorView(nullptr, DType::kFloat32, {40, kUnknown, 3, 4});
  ASSERT_TRUE(InferMhcPreSinkhorn(&fused).ok());
  EXPECT_EQ(fused.norm_out.sizes, (Dims{40, 2, 3, 4, 4}));
  EXPECT_EQ(fused.h_mix.sizes, (Dims{2, 3, 24}));
}

}  // namespace
}  // namespace anabranch
