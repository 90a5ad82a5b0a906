// mhc_post on real text: the bytes of a file become a residual stream of four lanes, a sublayer's
// output is written back and the lanes are mixed, in bfloat16; then the same in double precision.
//
//   cpp_mhc_post FILE
#include <algorithm>
#include <cstdio>

#include "anabranch/mhc.h"
#include "text_stream.h"

using anabranch::DType;
using anabranch::TensorView;

namespace {

constexpr std::int64_t kLanes = 4;
constexpr std::int64_t kHidden = 256;

// A doubly stochastic matrix: 0.7 stays in its lane, the rest moves on to the next ones.
constexpr double kMix[kLanes][kLanes] = {
    {0.7, 0.2, 0.1, 0.0}, {0.0, 0.7, 0.2, 0.1}, {0.1, 0.0, 0.7, 0.2}, {0.2, 0.1, 0.0, 0.7}};

bool Run(const anabranch::MhcPostArgs& args) {
  anabranch::Plan plan;
  anabranch::Status status = anabranch::Prepare(args, &plan);
  if (status.ok()) status = plan.Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
    return 2;
  }
  const std::string text = ReadText(argv[1], 2048);
  const auto tokens = static_cast<std::int64_t>(text.size());

  // The stream x, a sublayer's output h_out, and the coefficients of every token.
  std::vector<anabranch::BFloat16> x, h_out, y(text.size() * kLanes * kHidden);
  std::vector<float> h_post, h_res;
  for (std::size_t t = 0; t < text.size(); ++t) {
    const auto byte = static_cast<std::uint64_t>(static_cast<unsigned char>(text[t]));
    for (std::int64_t i = 0; i < kLanes; ++i) {
      for (std::int64_t d = 0; d < kHidden; ++d) {
        x.push_back(anabranch::ToBFloat16(Embed(byte * 4096 + i * 1024 + d)));
      }
      h_post.push_back(0.5f + 0.25f * static_cast<float>(i));
      for (double mix : kMix[i]) h_res.push_back(static_cast<float>(mix));
    }
    for (std::int64_t d = 0; d < kHidden; ++d) {
      h_out.push_back(anabranch::ToBFloat16(Embed(byte * 4096 + 4 * 1024 + d)));
    }
  }

  anabranch::MhcPostArgs args;
  args.x = TensorView(x.data(), DType::kBFloat16, {tokens, kLanes, kHidden});
  args.h_res = TensorView(h_res.data(), DType::kFloat32, {tokens, kLanes, kLanes});
  args.h_out = TensorView(h_out.data(), DType::kBFloat16, {tokens, kHidden});
  args.h_post = TensorView(h_post.data(), DType::kFloat32, {tokens, kLanes});
  args.y = TensorView(y.data(), DType::kBFloat16, {tokens, kLanes, kHidden});
  if (!Run(args)) return 1;

  // The definition: the same call with float64 tensors.
  const auto widen = [](const std::vector<anabranch::BFloat16>& values) {
    std::vector<double> wide;
    for (anabranch::BFloat16 v : values) wide.push_back(anabranch::ToFloat(v));
    return wide;
  };
  std::vector<double> x64 = widen(x), h_out64 = widen(h_out), y64(y.size());
  std::vector<double> h_post64(h_post.begin(), h_post.end()), h_res64(h_res.begin(), h_res.end());
  anabranch::MhcPostArgs exact;
  exact.x = TensorView(x64.data(), DType::kFloat64, args.x.sizes);
  exact.h_res = TensorView(h_res64.data(), DType::kFloat64, args.h_res.sizes);
  exact.h_out = TensorView(h_out64.data(), DType::kFloat64, args.h_out.sizes);
  exact.h_post = TensorView(h_post64.data(), DType::kFloat64, args.h_post.sizes);
  exact.y = TensorView(y64.data(), DType::kFloat64, args.y.sizes);
  if (!Run(exact)) return 1;

  double worst = 0;
  for (std::size_t k = 0; k < y.size(); ++k) {
    const double error = std::abs(anabranch::ToFloat(y[k]) - y64[k]);
    worst = std::max(worst, error / std::max(1.0, std::abs(y64[k])));
  }
  std::printf("%lld bytes of %s as a stream [%lld, %lld, %lld] bfloat16\n",
              static_cast<long long>(tokens), argv[1], static_cast<long long>(tokens),
              static_cast<long long>(kLanes), static_cast<long long>(kHidden));
  std::printf("  byte   lane 0    lane 1    lane 2    lane 3   (mixed stream, element 0)\n");
  for (std::int64_t t = 0; t < std::min<std::int64_t>(tokens, 6); ++t) {
    std::printf("  0x%02x", static_cast<unsigned char>(text[static_cast<std::size_t>(t)]));
    for (std::int64_t i = 0; i < kLanes; ++i) {
      std::printf(" %9.5f",
                  anabranch::ToFloat(y[static_cast<std::size_t>((t * kLanes + i) * kHidden)]));
    }
    std::printf("\n");
  }
  // One rounding to bfloat16 is at most 2^-8 of the value.
  const bool good = worst <= 0x1.01p-8;
  std::printf("largest error against the definition: %.3g (one bfloat16 rounding: %.3g): %s\n",
              worst, 0x1p-8, good ? "ok" : "WRONG");
  return good ? 0 : 1;
}
