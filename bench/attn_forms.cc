// block_attn_res against a plain online softmax over groups of sources: docs/performance.md has
// the numbers. The operator scores a token's rows, which stay in cache, and passes them a second
// time while it reads the next one; large tokens it takes in groups, in pairs as well. The plain
// form reads a group of rows, scores it, and then adds it to a running FP32 sum.
//
//   attn_forms_bench [avx512|avx2|...]
//
// One thread, BF16, rows from memory; least of several runs, both forms in turn.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "anabranch/block_attn_res.h"
#include "src/core/half.h"
#include "src/kernels/attn_packed.h"
#include "src/kernels/attn_residual.h"

namespace anabranch {
namespace {

constexpr double kBytes = 64e6;  // of all sources: far more than the caches
constexpr int kRepeats = 7;

double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::uint16_t* Aligned(std::vector<std::uint16_t>& memory) {
  auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return reinterpret_cast<std::uint16_t*>((address + 63) / 64 * 64);
}

class Problem {
 public:
  Problem(int sources, std::int64_t d)
      : count_(sources),
        d_(d),
        tokens_(std::max<std::int64_t>(
            8, static_cast<std::int64_t>(kBytes / (2.0 * sources * static_cast<double>(d))))),
        w_(static_cast<std::size_t>(d)),
        blocks_(static_cast<std::size_t>(sources)) {
    std::uint32_t state = 1;
    const auto next = [&state] {
      state = state * 1664525u + 1013904223u;
      return static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
    };
    std::vector<std::uint16_t> pattern(65536);
    for (auto& value : pattern) value = FloatToBFloat16(next() * 1.7f);
    for (std::size_t l = 0; l < blocks_.size(); ++l) {
      blocks_[l].resize(Elements() + 64);
      for (std::size_t k = 0; k < blocks_[l].size(); ++k) {
        blocks_[l][k] = pattern[(k * 7 + l * 4099) % pattern.size()];
      }
      rows_.push_back(Aligned(blocks_[l]));
    }
    for (float& w : w_) w = next() * 3 / std::sqrt(static_cast<float>(d));
    for (auto* out : {&direct_, &online_}) out->resize(Elements() + 64);
    query_.assign(static_cast<std::size_t>(PackedLength(d)), 0.0f);
    for (std::int64_t k = 0; k < d; ++k) {
      query_[static_cast<std::size_t>(PackedIndex(DType::kBFloat16, k))] =
          w_[static_cast<std::size_t>(k)];
    }
  }

  std::int64_t tokens() const { return tokens_; }

  Status Prepare(const Context& context) {
    BlockAttnResArgs args;
    for (std::uint16_t* row : rows_) {
      args.blocks.emplace_back(row, DType::kBFloat16, Dims{tokens_, d_});
    }
    if (count_ > kMaxBlocks) {
      args.partial_block = args.blocks.back();
      args.blocks.pop_back();
    }
    args.proj_weight = TensorView(w_.data(), DType::kFloat32, Dims{d_});
    args.h = TensorView(Aligned(direct_), DType::kBFloat16, Dims{tokens_, d_});
    return anabranch::Prepare(args, &plan_, context);
  }

  Status Direct(const Context& context) { return plan_.Run(context); }

  // Groups of `group` sources.
  void Online(int group, Target target) {
    const auto kernels = GetAttnResidualKernels(DType::kBFloat16, target);
    const auto packed = GetAttnPackedKernels(DType::kBFloat16, target);
    const auto floats = GetAttnPackedKernels(DType::kFloat32, target);
    std::vector<float> sum(static_cast<std::size_t>(PackedLength(d_)) + 16);
    auto* acc =
        reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(sum.data()) + 63) / 64 * 64);
    for (std::int64_t t = 0; t < tokens_; ++t) {
      float largest = -INFINITY;
      float total = 0;
      for (int first = 0; first < count_; first += group) {
        const int rows = std::min(group, count_ - first);
        AddGroup(kernels, packed, floats, t, first, rows, &largest, &total, acc);
      }
      const float* vector = acc;
      const float weight = 1 / total;
      packed.mix({&vector, &weight, 1, nullptr, 0, d_, Aligned(online_) + t * d_});
    }
  }

  // Largest difference of both results, which are of size 1.
  double Difference() {
    double worst = 0;
    for (std::size_t k = 0; k < Elements(); ++k) {
      const double a = BFloat16ToFloat(Aligned(direct_)[k]);
      const double b = BFloat16ToFloat(Aligned(online_)[k]);
      worst = std::max(worst, std::fabs(a - b));
    }
    return worst;
  }

 private:
  std::size_t Elements() const { return static_cast<std::size_t>(tokens_ * d_); }

  void AddGroup(const AttnResidualKernels& kernels, const AttnPackedKernels& packed,
                const AttnPackedKernels& floats, std::int64_t t, int first, int count,
                float* largest, float* total, float* acc) const {
    const void* rows[kMaxSources];
    const void* ahead[kMaxSources];
    AttnRowSums sums[kMaxSources];
    float p[kMaxSources];
    // Fetched meanwhile: the next group, after the last one the next token's first.
    const bool last = first + count == count_;
    for (int l = 0; l < count; ++l) {
      rows[l] = Row(first + l, t);
      ahead[l] = last ? Row(l, std::min(t + 1, tokens_ - 1))
                      : Row(std::min(first + count + l, count_ - 1), t);
    }
    kernels.dots({rows, count, query_.data(), nullptr, true, d_, nullptr, sums, ahead});
    float top = *largest;
    for (int l = 0; l < count; ++l) {
      p[l] = sums[l].query / std::sqrt(sums[l].squares / static_cast<float>(d_) + 1e-6f);
      top = std::max(top, p[l]);
    }
    if (first > 0 && top > *largest) {
      float scale = *largest;
      kernels.exp_minus(&scale, top, 1, &scale);
      const void* self = acc;
      floats.sum_packed({&self, &scale, 1, PackedLength(d_), false, acc});
      *total *= scale;
    }
    *largest = top;
    kernels.exp_minus(p, top, count, p);
    for (int l = 0; l < count; ++l) *total += p[l];
    packed.sum_packed({rows, p, count, d_, first > 0, acc});
  }

  const std::uint16_t* Row(int l, std::int64_t t) const {
    return rows_[static_cast<std::size_t>(l)] + t * d_;
  }

  int count_;
  std::int64_t d_;
  std::int64_t tokens_;
  std::vector<float> w_;
  std::vector<float> query_;
  std::vector<std::vector<std::uint16_t>> blocks_;
  std::vector<std::uint16_t*> rows_;
  std::vector<std::uint16_t> direct_, online_;
  Plan plan_;
};

int Run(const Context& context) {
  constexpr int kGroups[] = {2, 4, 8};
  std::printf("%5s %6s %6s %14s %12s %12s %12s\n", "L", "D", "T", "two passes", "online 2",
              "online 4", "online 8");
  for (const int sources : {2, 9, 32, 66, 128}) {
    for (const std::int64_t d : {512, 2048, 7168, 16384}) {
      Problem problem(sources, d);
      if (Status status = problem.Prepare(context); !status.ok()) {
        std::fprintf(stderr, "attn_forms_bench: %s\n", status.message().c_str());
        return 2;
      }
      double seconds[4] = {1e9, 1e9, 1e9, 1e9};
      for (int r = 0; r < kRepeats; ++r) {
        double start = Now();
        if (!problem.Direct(context).ok()) return 2;
        seconds[0] = std::min(seconds[0], Now() - start);
        for (int g = 0; g < 3; ++g) {
          start = Now();
          problem.Online(kGroups[g], context.target());
          seconds[g + 1] = std::min(seconds[g + 1], Now() - start);
        }
      }
      std::printf("%5d %6lld %6lld", sources, static_cast<long long>(d),
                  static_cast<long long>(problem.tokens()));
      for (double s : seconds) {
        std::printf(" %9.2f us", s * 1e6 / static_cast<double>(problem.tokens()));
      }
      std::printf("  difference %.1e\n", problem.Difference());
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace anabranch

int main(int argc, char** argv) {
  using anabranch::Target;
  Target target = Target::kAuto;
  if (argc > 1) {
    if (anabranch::Status status = anabranch::ParseTarget(argv[1], &target); !status.ok()) {
      std::fprintf(stderr, "attn_forms_bench: %s\n", status.message().c_str());
      return 2;
    }
  }
  Target resolved = target;
  if (!anabranch::ResolveTarget(target, &resolved).ok()) return 2;
  anabranch::Context context;
  context.set_target(resolved);
  context.set_threads(1);
  return anabranch::Run(context);
}
