#include "src/kernels/pre_backward.h"

#include <algorithm>
#include <cmath>

#include "src/core/half.h"
#include "src/core/parallel.h"
#include "src/core/plan_impl.h"
#include "src/kernels/pre_backward_memory.h"

namespace anabranch {

namespace {

// More tiles a step would read phi and its gradient, which come from the last-level cache, less
// often, but x as well from there.
constexpr int kMostTiles = 4;

// Cuts aligned parts off a workspace; from null it adds up their sizes.
class Cutter {
 public:
  explicit Cutter(std::byte* at) : at_(reinterpret_cast<std::uintptr_t>(at)) {}
  float* Floats(std::size_t count) {
    return reinterpret_cast<float*>(Bytes(count * sizeof(float)));
  }
  std::byte* Bytes(std::size_t bytes) {
    auto* p = reinterpret_cast<std::byte*>(at_);
    at_ += AlignUp(bytes);
    return p;
  }

 private:
  std::uintptr_t at_;
};

void CopyVector(const TensorView& from, float* to) {
  const auto* data = static_cast<const float*>(from.data);
  for (std::int64_t k = 0; k < from.sizes[0]; ++k) to[k] = data[k * from.strides[0]];
}

std::size_t Size(std::int64_t value) { return static_cast<std::size_t>(value); }

// Elements of D of an item: the whole of what the kernel takes, unless less lets the threads end
// sooner by a tenth. The bits are the same.
std::int64_t BlockFor(std::int64_t d, int threads) {
  std::int64_t best = kGradBlock;
  const auto cost = [&](std::int64_t block) { return CeilDiv(CeilDiv(d, block), threads) * block; };
  for (std::int64_t block = kGradBlock / 2; block >= 32; block /= 2) {
    if (10 * cost(block) <= 9 * cost(best)) best = block;
  }
  return best;
}

// Tokens of a step: a tile a thread, so that its x is still in L2 when it is read for the second
// time, up to four tiles; and enough items of their own part for all threads.
std::int64_t StepFor(int threads) {
  const std::int64_t items = CeilDiv(std::int64_t{threads} * kGradItem, kGradTile);
  return std::max<std::int64_t>(std::min(threads, kMostTiles), items) * kGradTile;
}

std::size_t StagingBytes(const PreShape& shape, std::size_t element) {
  return Size(shape.n) * kGradTile * kGradBlock * element;
}

}  // namespace

PreBackward::PreBackward(const PreShape& shape, const PreBackwardTensors& tensors,
                         const ResidualStage* stage, Target target, const Context& context,
                         PlanInfo* info)
    : shape_(shape),
      t_(tensors),
      stage_(stage),
      kernels_(GetProjectionGradKernels(tensors.x.dtype, target)),
      sigmoid_(GetSigmoid(target)),
      x_(tensors.x, 2),
      grad_h_in_(tensors.grad_h_in, 1),
      grad_x_post_(tensors.grad_x_post, 2),
      grad_x_(tensors.grad_x, 2),
      dense_(x_.stride1 == 1 && grad_h_in_.stride1 == 1 && grad_x_.stride1 == 1 &&
             (!tensors.grad_x_post.defined() || grad_x_post_.stride1 == 1)),
      stream_(dense_ && WritesPastCaches(tensors.grad_x)),
      block_(BlockFor(shape.d, context.threads())),
      blocks_(CeilDiv(shape.d, block_)),
      step_(StepFor(context.threads())),
      one_step_(shape.tokens <= step_) {
  const auto k = static_cast<double>(shape.n * shape.d);
  const double x_bytes =
      k * static_cast<double>(DTypeSize(tensors.x.dtype)) * static_cast<double>(shape.tokens);
  const std::int64_t token_items = CeilDiv(std::min<std::int64_t>(shape.tokens, step_), kGradItem);
  info->work_items = std::max(blocks_, token_items);
  info->threads = ThreadsForBytes(context, info->work_items,
                                  8 * x_bytes + 16 * k * static_cast<double>(shape.rows()));
  threads_ = info->threads;
  info->tile = kGradTile;
  info->kernel = "blocks of D";
  info->target = kernels_.target;
  info->streaming = stream_;
  const Slot slot = SlotAt({}, 0);
  slot_bytes_ = reinterpret_cast<std::uintptr_t>(slot.end);
  const Memory memory = Cut(nullptr);
  // No tokens: there is nothing to compute, only parameter gradients to zero.
  info->workspace_bytes = shape_.tokens == 0 ? 0 : reinterpret_cast<std::uintptr_t>(memory.end);
}

PreBackward::Memory PreBackward::Cut(std::byte* workspace) const {
  const std::size_t rows = Size(shape_.rows());
  // Parameters and gradients in units: of all of D, or, when one step takes all tokens, of the
  // block that a task has in hand, which then stays in cache.
  const std::int64_t elements = one_step_ ? 0 : shape_.d;
  const std::size_t units = Size(CeilDiv(elements, 32)) * Size(shape_.n) * rows * 32;
  Cutter cut(workspace);
  Memory m{};
  m.alpha = cut.Floats(3);
  m.bias = cut.Floats(rows);
  m.grad_bias = cut.Floats(2 * rows);
  m.partial = cut.Floats(Size(step_) / kGradItem * 2 * rows);
  m.d_mix = cut.Floats(Size(step_) * rows);
  m.by_row = cut.Floats(Size(step_) * rows);
  m.by_token = cut.Floats(Size(step_) * rows);
  m.rms = cut.Floats(Size(step_));
  m.h_pre = cut.Floats(Size(step_) * Size(shape_.n));
  m.phi = cut.Floats(units);
  m.grad_phi = cut.Floats(units);
  m.slots = cut.Bytes(Size(threads_) * slot_bytes_);
  m.end = cut.Bytes(0);
  return m;
}

PreBackward::Slot PreBackward::SlotAt(const Memory& memory, int slot) const {
  const std::size_t rows = Size(shape_.rows());
  Cutter cut(memory.slots == nullptr ? nullptr : memory.slots + Size(slot) * slot_bytes_);
  Slot s{};
  s.dz = cut.Floats(kGradItem * rows);
  s.z = cut.Floats(kGradItem * Size(shape_.res));
  s.res = cut.Floats(kGradItem * Size(shape_.res));
  s.gates = cut.Floats(kGradItem * rows);
  s.dots = cut.Floats(Size(shape_.n) * 17);
  const std::size_t units = one_step_ ? Size(block_) * Size(shape_.n) * rows : 0;
  s.phi = cut.Floats(units);
  s.grad_phi = cut.Floats(units);
  s.scratch = cut.Bytes(stage_ != nullptr ? stage_->scratch_bytes() : 0);
  s.staging = cut.Bytes(dense_ ? 0 : 4 * StagingBytes(shape_, x_.element));
  s.end = cut.Bytes(0);
  return s;
}

// --- grad_x and grad_phi

// Floats of the units before element `begin`, a multiple of 32.
std::size_t PreBackward::UnitsBefore(std::int64_t begin) const {
  return Size(begin) * Size(shape_.n) * Size(shape_.rows());
}

float* PreBackward::GradUnitsOf(std::int64_t begin, const Memory& memory, const Slot& slot) const {
  return one_step_ ? slot.grad_phi : memory.grad_phi + UnitsBefore(begin);
}

GradParameters PreBackward::ParametersOf(std::int64_t begin, const Memory& memory,
                                         const Slot& slot) const {
  GradParameters p{};
  p.stride = t_.phi.strides[1];
  p.row_stride = t_.phi.strides[0];
  p.stream_stride = shape_.d * p.stride;
  p.phi = static_cast<const float*>(t_.phi.data) + begin * p.stride;
  p.grad_stride = t_.grad_phi.strides[1];
  p.grad_row_stride = t_.grad_phi.strides[0];
  p.grad_stream_stride = shape_.d * p.grad_stride;
  p.grad_phi = static_cast<float*>(t_.grad_phi.data) + begin * p.grad_stride;
  if (t_.gamma.defined()) {
    p.gamma_stream = t_.gamma.strides[0];
    p.gamma_stride = t_.gamma.strides[1];
    p.gamma = static_cast<const float*>(t_.gamma.data) + begin * p.gamma_stride;
    p.grad_gamma_stream = t_.grad_gamma.strides[0];
    p.grad_gamma_stride = t_.grad_gamma.strides[1];
    p.grad_gamma = static_cast<float*>(t_.grad_gamma.data) + begin * p.grad_gamma_stride;
  }
  p.n = shape_.n;
  p.rows = shape_.rows();
  p.count = static_cast<int>(std::min<std::int64_t>(block_, shape_.d - begin));
  p.phi_units = one_step_ ? slot.phi : memory.phi + UnitsBefore(begin);
  p.grad_units = GradUnitsOf(begin, memory, slot);
  return p;
}

// Copies what the kernel reads into dense rows, and its result back.
void PreBackward::RunStaged(GradUnits call, std::int64_t begin, std::int64_t token,
                            const Slot& slot) const {
  const auto element = static_cast<std::int64_t>(x_.element);
  const std::size_t bytes = StagingBytes(shape_, x_.element);
  const std::int64_t token_bytes = shape_.n * kGradBlock * element;
  const void* x[kGradTile];
  const void* g[kGradTile];
  const void* post[kGradTile];
  void* out[kGradTile];
  const auto gather = [&](const TokenRows& from, int m, int lanes, std::byte* to) {
    for (int i = 0; i < lanes; ++i) {
      const std::byte* row =
          from.Token(token + m) + (i * from.stride0 + begin * from.stride1) * element;
      CopyStrided(to + i * kGradBlock * element, 1, row, from.stride1, call.count, from.element);
    }
  };
  for (int m = 0; m < call.tokens; ++m) {
    std::byte* at = slot.staging + m * token_bytes;
    gather(x_, m, shape_.n, at);
    gather(grad_h_in_, m, 1, at + bytes);
    if (grad_x_post_.defined()) gather(grad_x_post_, m, shape_.n, at + 2 * bytes);
    x[m] = at;
    g[m] = at + bytes;
    post[m] = at + 2 * bytes;
    out[m] = at + 3 * bytes;
  }
  call.x = x;
  call.grad_h_in = g;
  call.grad_x_post = grad_x_post_.defined() ? post : nullptr;
  call.grad_x = out;
  call.next = nullptr;
  call.stream = false;
  call.x_lane = call.post_lane = call.grad_x_lane = kGradBlock;
  kernels_.units.grad_units(call);
  for (int m = 0; m < call.tokens; ++m) {
    for (int i = 0; i < shape_.n; ++i) {
      std::byte* row =
          grad_x_.Token(token + m) + (i * grad_x_.stride0 + begin * grad_x_.stride1) * element;
      CopyStrided(row, grad_x_.stride1, static_cast<std::byte*>(out[m]) + i * kGradBlock * element,
                  1, call.count, grad_x_.element);
    }
  }
}

// `index`: number of the tile's first token in the step. `more`: a whole tile follows.
void PreBackward::TileOfBlock(std::int64_t begin, std::int64_t token, int index, int count,
                              bool more, const Memory& memory, const Slot& slot) const {
  const GradParameters p = ParametersOf(begin, memory, slot);
  const auto element = static_cast<std::int64_t>(x_.element);
  const void* x[kGradTile];
  const void* g[kGradTile];
  const void* post[kGradTile];
  const void* next[kGradTile];
  void* out[kGradTile];
  for (int m = 0; dense_ && m < count; ++m) {
    x[m] = x_.Token(token + m) + begin * element;
    g[m] = grad_h_in_.Token(token + m) + begin * element;
    if (grad_x_post_.defined()) post[m] = grad_x_post_.Token(token + m) + begin * element;
    out[m] = grad_x_.Token(token + m) + begin * element;
    if (more) next[m] = x_.Token(token + kGradTile + m) + begin * element;
  }
  GradUnits call{};
  call.x = x;
  call.x_lane = x_.stride0;
  call.grad_h_in = g;
  call.grad_x_post = grad_x_post_.defined() ? post : nullptr;
  call.post_lane = grad_x_post_.stride0;
  call.grad_x = out;
  call.grad_x_lane = grad_x_.stride0;
  call.stream = stream_;
  call.next = more ? next : nullptr;
  call.by_row = memory.by_row + index * shape_.rows();
  call.by_token = memory.by_token + index * shape_.rows();
  call.rms = memory.rms + index;
  call.h_pre = memory.h_pre + index * shape_.n;
  call.tokens = count;
  call.n = shape_.n;
  call.rows = shape_.rows();
  call.count = p.count;
  call.phi = p.phi_units;
  call.grad_phi = GradUnitsOf(begin, memory, slot);
  if (dense_) {
    kernels_.units.grad_units(call);
  } else {
    RunStaged(call, begin, token, slot);
  }
}

// One block of D for the `count` tokens of a step.
void PreBackward::BlockItem(std::int64_t block, std::int64_t token, int count, bool first,
                            bool last, const Memory& memory, const Slot& slot) const {
  const std::int64_t begin = block * block_;
  const GradParameters p = ParametersOf(begin, memory, slot);
  if (first) {
    kernels_.pack_units(p);
    const std::size_t floats = Size(CeilDiv(p.count, 32)) * Size(p.n) * Size(p.rows) * 32;
    std::fill_n(GradUnitsOf(begin, memory, slot), floats, 0.0f);
  }
  for (int index = 0; index < count; index += kGradTile) {
    const int tokens = std::min(kGradTile, count - index);
    TileOfBlock(begin, token + index, index, tokens, index + 2 * kGradTile <= count, memory, slot);
  }
  if (last) kernels_.finish_units(p);
}

// grad_bias and grad_alpha; rows ascending.
void PreBackward::FinishSmall(const Memory& memory) const {
  const int rows = shape_.rows();
  float alpha[3] = {};
  for (int f = 0; f < rows; ++f) {
    static_cast<float*>(t_.grad_bias.data)[f * t_.grad_bias.strides[0]] = memory.grad_bias[f];
    alpha[shape_.segment(f)] += memory.grad_bias[rows + f];
  }
  for (std::int64_t s = 0; s < t_.grad_alpha.sizes[0]; ++s) {
    static_cast<float*>(t_.grad_alpha.data)[s * t_.grad_alpha.strides[0]] = alpha[s];
  }
}

void PreBackward::ZeroParameters() const {
  for (const TensorView* t : {&t_.grad_phi, &t_.grad_alpha, &t_.grad_bias, &t_.grad_gamma}) {
    if (!t->defined()) continue;
    auto* data = static_cast<float*>(t->data);
    const bool matrix = t->rank() == 2;
    for (std::int64_t i = 0; i < t->sizes[0]; ++i) {
      for (std::int64_t j = 0; j < (matrix ? t->sizes[1] : 1); ++j) {
        data[i * t->strides[0] + (matrix ? j * t->strides[1] : 0)] = 0.0f;
      }
    }
  }
}

void PreBackward::Run(std::byte* workspace, const Context& context) const {
  if (shape_.tokens == 0) return ZeroParameters();
  const Memory memory = Cut(workspace);
  const int rows = shape_.rows();
  CopyVector(t_.alpha, memory.alpha);
  if (stage_ != nullptr) CopyVector(t_.bias, memory.bias);
  std::fill_n(memory.grad_bias, 2 * rows, 0.0f);
  std::int64_t token = 0;
  while (token < shape_.tokens) {
    const int count = static_cast<int>(std::min<std::int64_t>(step_, shape_.tokens - token));
    const std::int64_t items = CeilDiv(count, kGradItem);
    ForEachItem(context, threads_, items, [&](int slot, std::int64_t item) {
      const int begin = static_cast<int>(item) * kGradItem;
      TokenItem(token + begin, begin, std::min(kGradItem, count - begin), memory,
                SlotAt(memory, slot));
    });
    for (std::int64_t item = 0; item < items; ++item) {
      for (int f = 0; f < 2 * rows; ++f) memory.grad_bias[f] += memory.partial[item * 2 * rows + f];
    }
    for (int index = 0; index < count; index += kGradTile) {
      const int offset = index * rows;
      kernels_.units.pack_mix({memory.d_mix + offset, std::min(kGradTile, count - index), rows,
                               memory.by_row + offset, memory.by_token + offset});
    }
    const bool last = token + count == shape_.tokens;
    ForEachItem(context, threads_, blocks_, [&](int slot, std::int64_t block) {
      BlockItem(block, token, count, token == 0, last, memory, SlotAt(memory, slot));
    });
    token += count;
  }
  FinishSmall(memory);
}

}  // namespace anabranch
