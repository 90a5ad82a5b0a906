// See roofs.h. Compiled once per target.
#include "src/tools/roofs.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/tools/roofs.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "src/core/parallel.h"
#include "src/simd/dispatch.h"
#include "src/simd/vec16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anabranch {
namespace HWY_NAMESPACE {

// Flops done in `rounds` rounds: 12 independent chains hide the latency of the FMA units on 16 as
// well as on 32 registers.
constexpr int kChains = 12;

double FmaFlopsPerRound() { return 2.0 * kChains * static_cast<double>(kLanes); }

float FmaRounds(std::int64_t rounds) {
  VecF acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = SetF(static_cast<float>(i));
  const VecF a = SetF(0.999f);
  const VecF b = SetF(0.001f);
  for (std::int64_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < kChains; ++i) acc[i] = hn::MulAdd(acc[i], a, b);
  }
  VecF sum = acc[0];
  for (int i = 1; i < kChains; ++i) sum = hn::Add(sum, acc[i]);
  return hn::GetLane(sum);
}

// One token.
void StreamToken(const tools::StreamCall& call, const tools::StreamVariant& variant,
                 std::int64_t token) {
  constexpr std::size_t kRun = 512;
  const hn::CappedTag<std::uint8_t, 64> d;
  HWY_ALIGN std::uint8_t buffer[kRun];
  const std::size_t row = call.row_bytes;
  const auto* in = reinterpret_cast<const std::uint8_t*>(call.in) +
                   static_cast<std::size_t>(token * call.reads) * row;
  auto* out = reinterpret_cast<std::uint8_t*>(call.out) +
              static_cast<std::size_t>(token * call.writes) * row;
  for (std::size_t begin = 0; begin < row; begin += kRun) {
    const std::size_t count = std::min(kRun, row - begin);
    // Past a row's end: the beginning of the same row of the next token.
    const std::size_t ahead =
        variant.prefetch_bytes + (begin + variant.prefetch_bytes < row
                                      ? 0
                                      : (static_cast<std::size_t>(call.reads) - 1) * row);
    for (std::size_t k = 0; k + 64 <= count; k += hn::Lanes(d)) {
      for (int r = 0; variant.prefetch_bytes > 0 && k % 64 == 0 && r < call.reads; ++r) {
        hwy::Prefetch(in + static_cast<std::size_t>(r) * row + begin + k + ahead);
      }
      auto sum = hn::LoadU(d, in + begin + k);
      for (int r = 1; r < call.reads; ++r) {
        sum = hn::Xor(sum, hn::LoadU(d, in + static_cast<std::size_t>(r) * row + begin + k));
      }
      hn::Store(sum, d, buffer + k);
    }
    for (int w = 0; w < call.writes; ++w) {
      std::uint8_t* to = out + static_cast<std::size_t>(w) * row + begin;
      if (variant.non_temporal) {
        StreamOut(buffer, to, count);
      } else {
        std::memcpy(to, buffer, count);
      }
    }
  }
}

void StreamFlush() { hwy::FlushStream(); }

}  // namespace HWY_NAMESPACE
}  // namespace anabranch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anabranch {

HWY_EXPORT(FmaFlopsPerRound);
HWY_EXPORT(FmaRounds);
HWY_EXPORT(StreamToken);
HWY_EXPORT(StreamFlush);

namespace tools {
namespace {

double Seconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double MeasureFma(const Context& context, Target target, double flops) {
  const double per_round = ANABRANCH_DISPATCH(FmaFlopsPerRound, target)();
  const int threads = context.threads();
  const auto rounds = static_cast<std::int64_t>(flops / per_round / threads) + 1;
  const auto run = ANABRANCH_DISPATCH(FmaRounds, target);
  std::atomic<float> sink{0};
  const auto start = std::chrono::steady_clock::now();
  ForEachItem(context, threads, threads,
              [&](int, std::int64_t) { sink.store(run(rounds), std::memory_order_relaxed); });
  return Seconds(start);
}

double MeasureStream(const Context& context, Target target, const StreamCall& call,
                     const StreamVariant& variant) {
  const auto token = ANABRANCH_DISPATCH(StreamToken, target);
  const auto flush = ANABRANCH_DISPATCH(StreamFlush, target);
  const double token_bytes =
      static_cast<double>(call.row_bytes) * static_cast<double>(call.reads + call.writes);
  const auto tile =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(524288 / token_bytes), 1, call.tokens);
  const std::int64_t items = CeilDiv(call.tokens, tile);
  const int threads =
      ThreadsForBytes(context, items, token_bytes * static_cast<double>(call.tokens));
  const auto start = std::chrono::steady_clock::now();
  ForEachItem(context, threads, items, [&](int, std::int64_t item) {
    const std::int64_t end = std::min(call.tokens, (item + 1) * tile);
    for (std::int64_t t = item * tile; t < end; ++t) token(call, variant, t);
    if (variant.non_temporal) flush();
  });
  return Seconds(start);
}

}  // namespace tools
}  // namespace anabranch
#endif  // HWY_ONCE
