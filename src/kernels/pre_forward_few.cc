// PreForward for a few tokens: no tile of theirs would feed all threads, and packing phi would cost
// more than its products.
#include <algorithm>

#include "src/core/parallel.h"
#include "src/core/plan_impl.h"
#include "src/kernels/pre_forward.h"
#include "src/kernels/pre_forward_parts.h"

namespace anabranch {

// Decides how the products are cut for `threads` tasks; the number of items. Groups of tokens come
// first, each of which is widened once; then parts of the rows of phi, which need no sums of their
// own either and read phi as long runs. Where all of these are too few, the blocks of K are dealt
// out, each with its own sums, which are added in their order afterwards.
std::int64_t PreForward::CutFewTokens(int threads) {
  const std::int64_t all_blocks = blocks_ * shape_.n;
  const auto groups = static_cast<int>(CeilDiv(shape_.tokens, kProjectionTokens));
  row_parts_ = 0;
  if (project_few_ != nullptr) {
    const int most = shape_.rows() < 6 ? (shape_.rows() + 1) / 2 : shape_.rows() / 3;
    int tokens = std::clamp(threads, 1, std::max(groups, 1));
    int rows = std::min(static_cast<int>(CeilDiv(threads, tokens)), most);
    if (groups % tokens != 0) {  // some would have a group more: many small items instead
      tokens = groups;
      rows = std::min(threads, most);
    }
    if (rows * tokens >= std::min<std::int64_t>(threads, all_blocks)) {
      row_parts_ = rows;
      token_parts_ = tokens;
    }
  }
  return row_parts_ > 0 ? std::int64_t{row_parts_} * token_parts_ : all_blocks;
}

// One block of up to kProjectionTokens tokens and the rows begin .. end - 1.
void PreForward::ProjectInPlace(int token, int count, std::int64_t block, int begin, int end,
                                float* sums) const {
  const std::int64_t first = BlockBegin(block);
  const std::int64_t stream = block / blocks_;
  const std::int64_t offset = stream * x_.stride0 + first;
  const void* pointers[kProjectionTokens];
  for (int m = 0; m < count; ++m) {
    pointers[m] = x_.Token(token + m) + offset * static_cast<std::int64_t>(x_.element);
  }
  project_few_({pointers, count, BlockCount(block),
                static_cast<const float*>(t_.phi.data) + stream * shape_.d + first,
                t_.phi.strides[0], shape_.rows(), begin, end, begin == 0, sums});
}

// sums: [count][rows + 1][16].
void PreForward::ProjectByRows(int count, float* sums, const Context& context) const {
  const std::int64_t all_blocks = blocks_ * shape_.n;
  const auto groups = static_cast<int>(CeilDiv(count, kProjectionTokens));
  std::fill_n(sums, static_cast<std::size_t>(count) * sums_floats_, 0.0f);
  const auto part = [&](int /*slot*/, std::int64_t item) {
    const int rows = static_cast<int>(item) % row_parts_;
    const int tokens = static_cast<int>(item) / row_parts_;
    const int first = tokens * groups / token_parts_ * kProjectionTokens;
    const int last = std::min((tokens + 1) * groups / token_parts_ * kProjectionTokens, count);
    for (std::int64_t block = 0; block < all_blocks; ++block) {
      for (int m = first; m < last; m += kProjectionTokens) {
        ProjectInPlace(m, std::min(kProjectionTokens, last - m), block,
                       rows * shape_.rows() / row_parts_, (rows + 1) * shape_.rows() / row_parts_,
                       sums + static_cast<std::size_t>(m) * sums_floats_);
      }
    }
  };
  ForEachItem(context, threads_, std::int64_t{row_parts_} * token_parts_, part);
}

// sums: [blocks][count][rows + 1][16]. `packed`: room for a block of phi for each task, where it
// must be packed.
void PreForward::ProjectByBlocks(int count, std::byte* packed, float* sums,
                                 const Context& context) const {
  const std::int64_t all_blocks = blocks_ * shape_.n;
  const std::size_t block_floats = static_cast<std::size_t>(count) * sums_floats_;
  const std::size_t packed_bytes = AlignUp(packed_floats_ * sizeof(float));
  ForEachItem(context, threads_, all_blocks, [&](int slot, std::int64_t block) {
    auto* phi = reinterpret_cast<float*>(packed + static_cast<std::size_t>(slot) * packed_bytes);
    float* to = sums + static_cast<std::size_t>(block) * block_floats;
    std::fill_n(to, block_floats, 0.0f);
    if (project_few_ == nullptr) PackBlock(block, phi);
    for (int m = 0; m < count; m += kProjectionTokens) {
      const int group = std::min(kProjectionTokens, count - m);
      float* of_group = to + static_cast<std::size_t>(m) * sums_floats_;
      if (project_few_ == nullptr) {
        ProjectGroup(m, group, block, m, block, phi, of_group);
      } else {
        ProjectInPlace(m, group, block, 0, shape_.rows(), of_group);
      }
    }
  });
}

void PreForward::RunFewTokens(std::byte* workspace, const Context& context) const {
  const int count = static_cast<int>(shape_.tokens);
  std::byte* slots = workspace + parameters_bytes_ + AlignUp(phi_bytes_);
  const Parameters parameters = LoadParameters(reinterpret_cast<float*>(workspace));
  std::byte* packed = workspace + parameters_bytes_;
  auto* sums = reinterpret_cast<float*>(
      packed + (project_few_ != nullptr ? 0
                                        : static_cast<std::size_t>(threads_) *
                                              AlignUp(packed_floats_ * sizeof(float))));
  if (row_parts_ > 0) {
    ProjectByRows(count, sums, context);
  } else {
    ProjectByBlocks(count, packed, sums, context);
  }
  const std::int64_t parts = row_parts_ > 0 ? 1 : blocks_ * shape_.n;
  const std::size_t part_floats = static_cast<std::size_t>(count) * sums_floats_;
  const auto finish = [&](int slot, std::int64_t item) {
    const int begin = static_cast<int>(item) * kProjectionTokens;
    const int tokens = std::min(kProjectionTokens, count - begin);
    float* to = sums + static_cast<std::size_t>(begin) * sums_floats_;
    for (std::int64_t part = 1; part < parts; ++part) {
      const float* from = to + static_cast<std::size_t>(part) * part_floats;
      for (std::size_t k = 0; k < static_cast<std::size_t>(tokens) * sums_floats_; ++k) {
        to[k] += from[k];
      }
    }
    FinishTile(begin, tokens, to, SlotAt(slots, slot), parameters);
  };
  ForEachItem(context, threads_, CeilDiv(count, kProjectionTokens), finish);
}

}  // namespace anabranch
