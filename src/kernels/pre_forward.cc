#include "src/kernels/pre_forward.h"

#include <algorithm>
#include <cmath>

#include "src/core/half.h"
#include "src/core/parallel.h"
#include "src/core/plan_impl.h"
#include "src/kernels/pre_forward_parts.h"

namespace anabranch {
namespace {

// So few tokens are split along K instead. phi is read where it is; if it is not dense, or gamma
// multiplies it, every block is packed by the task that uses it.
constexpr std::int64_t kFewTokens = 16;

// More tokens are few, too, while phi need not be packed and the sums of all blocks, where there
// are any, stay in L2: T = 17, 32 and 64 at D = 4096 take 198, 329 and 668 us, in tiles 350, 501
// and 803.
constexpr std::int64_t kMoreTokens = 64;
constexpr double kPartialBytes = 4 << 20;

// A tile is large enough that phi, which it reads from L2 or L3 once, costs little, and small
// enough that its part of x is still in cache for h_in.
constexpr int kTile = 32;

// Consecutive blocks of a group of tokens before the next group: its sums stay in L1 meanwhile,
// and this much of phi in L2.
constexpr std::int64_t kBlocksAtOnce = 4;

// Tokens of a tile, at most `largest`: whole groups of kProjectionTokens, four tiles a thread or
// more, so that the threads end together; where that leaves some idle at the end, the size with
// which the last one ends soonest. A group that is not whole takes as long as two tokens more.
int TileFor(std::int64_t tokens, int threads, int largest) {
  const std::int64_t fair = CeilDiv(tokens, std::int64_t{4} * threads);
  const auto whole =
      static_cast<int>(CeilDiv(std::min<std::int64_t>(fair, kTile), kProjectionTokens)) *
      kProjectionTokens;
  int best = std::clamp(whole, kProjectionTokens, largest);
  const auto rounds = [&](int tile) { return CeilDiv(CeilDiv(tokens, tile), threads); };
  const auto cost = [&](int tile) {
    return rounds(tile) * (tile + (tile % kProjectionTokens == 0 ? 0 : 2));
  };
  constexpr double kIdle = 0.05;
  const double capacity = static_cast<double>(rounds(best) * best) * threads;
  if (static_cast<double>(tokens) >= (1 - kIdle) * capacity) return best;
  for (int tile = kProjectionTokens / 2; tile <= largest; ++tile) {
    if (cost(tile) < cost(best)) best = tile;
  }
  return best;
}

}  // namespace

PreShape StreamShape(const TensorView& x) {
  const int leading = x.rank() - 2;
  PreShape s;
  s.tokens = CountTokens(x.sizes, leading);
  s.n = static_cast<int>(x.sizes[leading]);
  s.d = x.sizes[leading + 1];
  return s;
}

bool WritesPastCaches(const TensorView& output) {
  const auto element = static_cast<std::int64_t>(DTypeSize(output.dtype));
  const int rank = output.rank();
  std::int64_t bytes = element;
  bool lines = reinterpret_cast<std::uintptr_t>(output.data) % 64 == 0;
  for (int i = 0; i < rank; ++i) {
    bytes *= output.sizes[i];
    lines &= i + 1 == rank ? output.strides[i] == 1 : output.strides[i] * element % 64 == 0;
  }
  return lines && bytes > StreamingThreshold();
}

PreForward::PreForward(const PreShape& shape, const PreForwardTensors& tensors,
                       const ResidualStage* stage, Target target, const Context& context,
                       PlanInfo* info)
    : shape_(shape),
      t_(tensors),
      stage_(stage),
      kernels_(GetProjectionKernels(tensors.x.dtype, target)),
      sigmoid_(GetSigmoid(target)),
      x_(tensors.x, 2),
      h_in_(tensors.h_in, 1),
      dense_(x_.stride1 == 1),
      stream_(dense_ && WritesPastCaches(tensors.h_in)),
      blocks_(CeilDiv(shape.d, kProjectionBlock)) {
  const auto rows = static_cast<std::size_t>(shape.rows());
  const std::int64_t widest = std::min<std::int64_t>(shape.d, kProjectionBlock);
  packed_floats_ = rows * static_cast<std::size_t>(CeilDiv(widest, 32) * 32);
  sums_floats_ = (rows + 1) * 16;
  const std::int64_t all_blocks = blocks_ * shape.n;
  const auto k = static_cast<double>(shape.n * shape.d);
  const double x_bytes =
      k * static_cast<double>(DTypeSize(tensors.x.dtype)) * static_cast<double>(shape.tokens);
  // Eight multiply-adds on an element of x take about as long as reading it does.
  const double work_bytes =
      (1 + static_cast<double>(rows) / 8) * x_bytes + 4 * k * static_cast<double>(rows);
  const bool in_place = dense_ && tensors.phi.strides[1] == 1 && !tensors.gamma.defined();
  const double partial_bytes = static_cast<double>(all_blocks * shape.tokens) *
                               static_cast<double>(sums_floats_ * sizeof(float));
  few_tokens_ = shape.tokens <= kFewTokens || (in_place && shape.tokens <= kMoreTokens);
  if (few_tokens_) {
    if (in_place) project_few_ = GetProjectFew(tensors.x.dtype, target);
    info->work_items = CutFewTokens(ThreadsForBytes(context, std::int64_t{1} << 40, work_bytes));
    const bool too_much = row_parts_ == 0 && partial_bytes > kPartialBytes;
    few_tokens_ = shape.tokens <= kFewTokens || !too_much;
  }
  if (few_tokens_) {
    tile_ = static_cast<int>(std::max<std::int64_t>(shape.tokens, 1));
  } else {
    const int largest = rows <= 64 ? kTile : kProjectionTokens;
    tile_ = TileFor(shape.tokens, context.threads(), largest);
    info->work_items = CeilDiv(shape.tokens, tile_);
  }
  info->threads = ThreadsForBytes(context, info->work_items, work_bytes);
  threads_ = info->threads;
  info->tile = tile_;
  info->kernel = !few_tokens_     ? "tiles of tokens"
                 : row_parts_ > 0 ? "split along the rows of phi"
                                  : "split along K";
  info->target = kernels_.target;
  info->streaming = stream_;

  const auto tile = static_cast<std::size_t>(tile_);
  parameters_bytes_ = AlignUp((3 + rows) * sizeof(float));
  slot_tokens_ = few_tokens_ ? std::min(tile_, kProjectionTokens) : tile_;
  const auto slot_tokens = static_cast<std::size_t>(slot_tokens_);
  slot_bytes_ = AlignUp(slot_tokens * sums_floats_ * sizeof(float)) +
                AlignUp(slot_tokens * (rows + 1) * sizeof(float)) +
                2 * AlignUp(slot_tokens * rows * sizeof(float)) +
                (stage != nullptr ? AlignUp(stage->scratch_bytes()) : 0);
  // Packed phi: all of it, or the block at hand of each task of few tokens; and their sums, when
  // split along K those of every block.
  const auto n_blocks = static_cast<std::size_t>(all_blocks);
  const auto threads = static_cast<std::size_t>(info->threads);
  const std::size_t packed_blocks = !few_tokens_ ? n_blocks : project_few_ != nullptr ? 0 : threads;
  const std::size_t partial_sums = !few_tokens_ ? 0 : row_parts_ > 0 ? 1 : n_blocks;
  phi_bytes_ = packed_blocks * AlignUp(packed_floats_ * sizeof(float)) +
               partial_sums * tile * sums_floats_ * sizeof(float);
  info->workspace_bytes = parameters_bytes_ + AlignUp(phi_bytes_) + threads * slot_bytes_;
}

int PreForward::BlockCount(std::int64_t block) const {
  return static_cast<int>(std::min<std::int64_t>(kProjectionBlock, shape_.d - BlockBegin(block)));
}

void PreForward::PackBlock(std::int64_t block, float* out) const {
  const std::int64_t stream = block / blocks_;
  const std::int64_t begin = BlockBegin(block);
  PackProjection pack{};
  pack.row_stride = t_.phi.strides[0];
  pack.stride = t_.phi.strides[1];
  pack.phi = static_cast<const float*>(t_.phi.data) + (stream * shape_.d + begin) * pack.stride;
  if (t_.gamma.defined()) {
    pack.gamma_stride = t_.gamma.strides[1];
    pack.gamma = static_cast<const float*>(t_.gamma.data) + stream * t_.gamma.strides[0] +
                 begin * pack.gamma_stride;
  }
  pack.rows = shape_.rows();
  pack.count = BlockCount(block);
  pack.out = out;
  kernels_.pack(pack);
}

// One block of up to kProjectionTokens tokens; next_*: what will be asked for after it.
void PreForward::ProjectGroup(std::int64_t token, int count, std::int64_t block,
                              std::int64_t next_token, std::int64_t next_block, const float* phi,
                              float* sums) const {
  const void* pointers[kProjectionTokens];
  const void* next[kProjectionTokens];
  alignas(64) std::byte staged[kProjectionTokens * kProjectionBlock * sizeof(float)];
  const auto element = static_cast<std::int64_t>(x_.element);
  const auto offset = [&](std::int64_t b) {
    return (b / blocks_ * x_.stride0 + BlockBegin(b) * x_.stride1) * element;
  };
  const std::int64_t here = offset(block);
  const std::int64_t there = offset(next_block);
  for (int m = 0; m < count; ++m) {
    pointers[m] = x_.Token(token + m) + here;
    if (dense_) {
      next[m] = x_.Token(std::min(next_token + m, shape_.tokens - 1)) + there;
    } else {
      std::byte* to = staged + m * kProjectionBlock * element;
      CopyStrided(to, 1, pointers[m], x_.stride1, BlockCount(block), x_.element);
      pointers[m] = to;
    }
  }
  kernels_.project(
      {pointers, dense_ ? next : nullptr, count, BlockCount(block), phi, shape_.rows(), sums});
}

void PreForward::ProjectTile(std::int64_t token, int count, const float* phi, float* sums) const {
  const std::int64_t all_blocks = blocks_ * shape_.n;
  for (std::int64_t first = 0; first < all_blocks; first += kBlocksAtOnce) {
    const std::int64_t last = std::min(first + kBlocksAtOnce, all_blocks) - 1;
    for (int m = 0; m < count; m += kProjectionTokens) {
      const int group = std::min(kProjectionTokens, count - m);
      for (std::int64_t block = first; block <= last; ++block) {
        std::int64_t next_token = token + m;
        std::int64_t next_block = block + 1;
        if (block == last) {
          const bool next_group = m + kProjectionTokens < count;
          next_token = next_group ? token + m + kProjectionTokens : token;
          next_block = next_group ? first : std::min(last + 1, all_blocks - 1);
        }
        ProjectGroup(token + m, group, block, next_token, next_block,
                     phi + static_cast<std::size_t>(block) * packed_floats_,
                     sums + static_cast<std::size_t>(m) * sums_floats_);
      }
    }
  }
}

PreForward::Parameters PreForward::LoadParameters(float* memory) const {
  const auto* alpha = static_cast<const float*>(t_.alpha.data);
  const auto* bias = static_cast<const float*>(t_.bias.data);
  for (int s = 0; s < t_.alpha.sizes[0]; ++s) memory[s] = alpha[s * t_.alpha.strides[0]];
  for (int f = 0; f < shape_.rows(); ++f) memory[3 + f] = bias[f * t_.bias.strides[0]];
  return {memory, memory + 3};
}

PreForward::Slot PreForward::SlotAt(std::byte* slots, int slot) const {
  std::byte* at = slots + static_cast<std::size_t>(slot) * slot_bytes_;
  const auto tile = static_cast<std::size_t>(slot_tokens_);
  const auto rows = static_cast<std::size_t>(shape_.rows());
  const auto take = [&at](std::size_t floats) {
    auto* p = reinterpret_cast<float*>(at);
    at += AlignUp(floats * sizeof(float));
    return p;
  };
  Slot s{};
  s.sums = take(tile * sums_floats_);
  s.mix = take(tile * (rows + 1));
  s.gates = take(tile * rows);
  s.z = take(tile * rows);
  s.scratch = at;
  return s;
}

// Everything of a token but its sigmoids and h_in. `mix`: h_mix and, behind it, the sum of squares.
void PreForward::FinishToken(std::int64_t token, const float* sums, float* gates, float* z,
                             float* mix, const Parameters& parameters) const {
  const int rows = shape_.rows();
  kernels_.finish_sums(sums, rows + 1, mix);
  const float mean = mix[rows] / static_cast<float>(shape_.n * shape_.d);
  const float inv_rms = 1.0f / std::sqrt(mean + t_.norm_eps);
  const int gated = shape_.n + shape_.post;
  for (int f = 0; f < rows; ++f) {
    mix[f] = CleanNan(mix[f]);
    const float w = mix[f] * inv_rms;
    const float logit = w * parameters.alpha[shape_.segment(f)] + parameters.bias[f];
    (f < gated ? gates[f] : z[f - gated]) = logit;
  }
  if (t_.inv_rms.defined()) t_.inv_rms.At<float>(token) = inv_rms;
  for (int f = 0; t_.h_mix.defined() && f < rows; ++f) t_.h_mix.At<float>(token, f) = mix[f];
  if (stage_ != nullptr || !t_.h_res.defined()) return;
  for (int f = 0; f < shape_.res; ++f) {
    t_.h_res.At<float>(token, f / t_.res_columns, f % t_.res_columns) = z[f];
  }
}

void PreForward::StoreHIn(std::int64_t token, const float* weights) const {
  if (dense_ && h_in_.stride1 == 1) {
    kernels_.weighted_sum(
        {x_.Token(token), x_.stride0, weights, shape_.n, shape_.d, h_in_.Token(token), stream_});
    return;
  }
  constexpr std::int64_t kPiece = 128;
  const auto element = static_cast<std::int64_t>(x_.element);
  alignas(64) std::byte rows[16 * kPiece * sizeof(float)];
  alignas(64) std::byte out[kPiece * sizeof(float)];
  for (std::int64_t begin = 0; begin < shape_.d; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, shape_.d - begin);
    for (int i = 0; i < shape_.n; ++i) {
      CopyStrided(rows + i * kPiece * element, 1,
                  x_.Token(token) + (i * x_.stride0 + begin * x_.stride1) * element, x_.stride1,
                  count, x_.element);
    }
    kernels_.weighted_sum({rows, kPiece, weights, shape_.n, count, out, false});
    CopyStrided(h_in_.Token(token) + begin * h_in_.stride1 * element, h_in_.stride1, out, 1, count,
                h_in_.element);
  }
}

void PreForward::FinishTile(std::int64_t token, int count, const float* sums, const Slot& slot,
                            const Parameters& parameters) const {
  const int gated = shape_.n + shape_.post;
  for (int m = 0; m < count; ++m) {
    FinishToken(token + m, sums + static_cast<std::size_t>(m) * sums_floats_,
                slot.gates + m * gated, slot.z + m * shape_.res, slot.mix + m * (shape_.rows() + 1),
                parameters);
  }
  sigmoid_(slot.gates, std::int64_t{count} * gated);
  for (int m = 0; m < count; ++m) {
    float* gates = slot.gates + m * gated;
    for (int i = 0; i < shape_.n; ++i) {
      gates[i] = CleanNan(gates[i] + t_.hc_eps);
      if (t_.h_pre.defined()) t_.h_pre.At<float>(token + m, i) = gates[i];
    }
    for (int i = 0; i < shape_.post; ++i) {
      t_.h_post.At<float>(token + m, i) = t_.post_multiplier * gates[shape_.n + i];
    }
    StoreHIn(token + m, gates);
  }
  if (stage_ != nullptr) stage_->Forward(token, count, slot.z, slot.scratch);
}

void PreForward::RunTiles(std::byte* workspace, const Context& context) const {
  const Parameters parameters = LoadParameters(reinterpret_cast<float*>(workspace));
  auto* phi = reinterpret_cast<float*>(workspace + parameters_bytes_);
  std::byte* slots = workspace + parameters_bytes_ + AlignUp(phi_bytes_);
  const std::int64_t all_blocks = blocks_ * shape_.n;
  ForEachItem(context, threads_, all_blocks, [&](int /*slot*/, std::int64_t block) {
    PackBlock(block, phi + static_cast<std::size_t>(block) * packed_floats_);
  });
  const std::int64_t items = CeilDiv(shape_.tokens, tile_);
  ForEachItem(context, threads_, items, [&](int slot_index, std::int64_t item) {
    const Slot slot = SlotAt(slots, slot_index);
    const std::int64_t token = item * tile_;
    const int count = static_cast<int>(std::min<std::int64_t>(tile_, shape_.tokens - token));
    std::fill_n(slot.sums, static_cast<std::size_t>(count) * sums_floats_, 0.0f);
    ProjectTile(token, count, phi, slot.sums);
    FinishTile(token, count, slot.sums, slot, parameters);
  });
}

void PreForward::Run(std::byte* workspace, const Context& context) const {
  if (few_tokens_) {
    RunFewTokens(workspace, context);
  } else {
    RunTiles(workspace, context);
  }
}

}  // namespace anabranch
