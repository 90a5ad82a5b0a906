// The schedule of block attention residuals on a stack of layers, on real text: when a block
// begins, one attn_res_prepare attends over the finished blocks for the queries of all its layers
// at once; then every layer adds the block's running sum with attn_res_merge, computes, and adds
// its output to that sum. Every layer's input is checked against the direct form, block_attn_res.
//
//   cpp_attn_res_schedule FILE
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "anabranch/attn_res.h"
#include "text_stream.h"

using anabranch::BFloat16;
using anabranch::Dims;
using anabranch::DType;
using anabranch::TensorView;

namespace {

constexpr std::int64_t kHidden = 192;
constexpr std::int64_t kBlocks = 4;          // blocks of layers
constexpr std::int64_t kLayersPerBlock = 3;  // queries of one prepare

using Halves = std::vector<BFloat16>;

TensorView View(Halves& values, std::int64_t tokens) {
  return TensorView(values.data(), DType::kBFloat16, {tokens, kHidden});
}

template <class Args>
void Run(const Args& args) {
  anabranch::Plan plan;
  anabranch::Status status = anabranch::Prepare(args, &plan);
  if (status.ok()) status = plan.Run();
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

// Stands for attention or a feed-forward part: mixes neighbouring elements and bends them.
Halves Layer(const Halves& in, std::int64_t layer) {
  Halves out(in.size());
  for (std::size_t k = 0; k < in.size(); ++k) {
    const std::size_t row = k / kHidden * kHidden;
    const float a = anabranch::ToFloat(in[k]);
    const float b = anabranch::ToFloat(in[row + (k + 7) % kHidden]);
    const float gain = Embed(static_cast<std::uint64_t>(layer * 1000 + 500) + k % kHidden);
    out[k] = anabranch::ToBFloat16(std::tanh(gain * a + 0.5f * b));
  }
  return out;
}

// What the layers of one block share.
struct BlockInputs {
  std::vector<TensorView> finished;
  std::vector<float> queries;  // [S, D]
  std::vector<float> o, m, l;  // of all queries
};

void PrepareBlock(std::int64_t tokens, BlockInputs* block) {
  block->o.resize(static_cast<std::size_t>(kLayersPerBlock * tokens * kHidden));
  block->m.resize(static_cast<std::size_t>(kLayersPerBlock * tokens));
  block->l.resize(block->m.size());
  anabranch::AttnResPrepareArgs args;
  args.blocks = block->finished;
  args.queries = TensorView(block->queries.data(), DType::kFloat32, {kLayersPerBlock, kHidden});
  args.o = TensorView(block->o.data(), DType::kFloat32, {kLayersPerBlock, tokens, kHidden});
  args.m = TensorView(block->m.data(), DType::kFloat32, {kLayersPerBlock, tokens});
  args.l = TensorView(block->l.data(), DType::kFloat32, {kLayersPerBlock, tokens});
  Run(args);
}

TensorView Query(BlockInputs& block, std::int64_t s) {
  return TensorView(block.queries.data() + s * kHidden, DType::kFloat32, {kHidden});
}

// Layer s of the block: its input from the two-phase form.
Halves Merge(BlockInputs& block, std::int64_t s, Halves& running, std::int64_t tokens) {
  Halves h(running.size());
  anabranch::AttnResMergeArgs args;
  args.o = TensorView(block.o.data() + s * tokens * kHidden, DType::kFloat32, {tokens, kHidden});
  args.m = TensorView(block.m.data() + s * tokens, DType::kFloat32, {tokens});
  args.l = TensorView(block.l.data() + s * tokens, DType::kFloat32, {tokens});
  args.v = View(running, tokens);
  args.query = Query(block, s);
  args.h = View(h, tokens);
  Run(args);
  return h;
}

Halves Direct(BlockInputs& block, std::int64_t s, Halves& running, std::int64_t tokens) {
  Halves h(running.size());
  anabranch::BlockAttnResArgs args;
  args.blocks = block.finished;
  args.partial_block = View(running, tokens);
  args.proj_weight = Query(block, s);
  args.h = View(h, tokens);
  Run(args);
  return h;
}

// Largest difference in units of one bfloat16 rounding of the value.
double Difference(const Halves& a, const Halves& b) {
  double worst = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    const double x = anabranch::ToFloat(a[k]);
    const double y = anabranch::ToFloat(b[k]);
    worst = std::max(worst, std::abs(x - y) / std::max(0x1p-6, std::abs(y)) * 0x1p8);
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
    return 2;
  }
  const std::string text = ReadText(argv[1], 512);
  const auto tokens = static_cast<std::int64_t>(text.size());
  std::vector<Halves> outputs(1);  // of finished blocks; first of all the embedding
  for (const char c : text) {
    const auto byte = static_cast<std::uint64_t>(static_cast<unsigned char>(c));
    for (std::uint64_t d = 0; d < kHidden; ++d) {
      outputs[0].push_back(anabranch::ToBFloat16(Embed(byte * 4096 + d)));
    }
  }
  std::printf("%lld bytes of %s, hidden size %lld, %lld blocks of %lld layers, bfloat16\n",
              static_cast<long long>(tokens), argv[1], static_cast<long long>(kHidden),
              static_cast<long long>(kBlocks), static_cast<long long>(kLayersPerBlock));

  double worst = 0;
  for (std::int64_t b = 0; b < kBlocks; ++b) {
    BlockInputs block;
    for (Halves& output : outputs) block.finished.push_back(View(output, tokens));
    for (std::int64_t s = 0; s < kLayersPerBlock; ++s) {
      for (std::int64_t d = 0; d < kHidden; ++d) {
        const auto key = static_cast<std::uint64_t>(9000000 + (b * 16 + s) * 1024 + d);
        block.queries.push_back(0.15f * Embed(key));
      }
    }
    PrepareBlock(tokens, &block);

    Halves running = Layer(outputs.back(), 100 + b);  // the block's sum so far
    for (std::int64_t s = 0; s < kLayersPerBlock; ++s) {
      const Halves input = Merge(block, s, running, tokens);
      const double difference = Difference(input, Direct(block, s, running, tokens));
      worst = std::max(worst, difference);
      std::printf(
          "  block %lld layer %lld: %zu sources, h[0] = %9.5f, off the direct form by %.2f "
          "bfloat16 roundings\n",
          static_cast<long long>(b), static_cast<long long>(s), outputs.size() + 1,
          anabranch::ToFloat(input[0]), difference);
      const Halves output = Layer(input, b * kLayersPerBlock + s);
      for (std::size_t k = 0; k < running.size(); ++k) {
        running[k] =
            anabranch::ToBFloat16(anabranch::ToFloat(running[k]) + anabranch::ToFloat(output[k]));
      }
    }
    outputs.push_back(running);
  }
  // Both forms agree within FP32 rounding; where that falls on the border between two bfloat16
  // numbers they may round to either, at most two halves apart.
  const bool good = worst <= 2.01;
  std::printf("largest difference: %.2f bfloat16 roundings: %s\n", worst, good ? "ok" : "WRONG");
  return good ? 0 : 1;
}
