// The online softmax of block_attn_res: sources are taken in groups; each group is read, scored and
// added to an FP32 sum that is scaled down whenever a larger score turns up. Every source element
// is read from memory once however large a token is. docs/performance.md has the numbers.
#ifndef ANABRANCH_SRC_OPS_ATTN_RES_ONLINE_H_
#define ANABRANCH_SRC_OPS_ATTN_RES_ONLINE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "src/core/parallel.h"
#include "src/kernels/attn_residual.h"

namespace anabranch {

// Sources in groups of nearly the same size, larger ones first.
struct OnlineGroups {
  // Beyond this size a token does not stay in a second-level cache beside the next one. The form
  // depends on the shape alone, never on the machine, or the bits would.
  static constexpr std::int64_t kTokenBytes = std::int64_t{480} << 10;
  static constexpr std::int64_t kGroupBytes = std::int64_t{288} << 10;
  static constexpr std::int64_t kMostRows = 9;

  OnlineGroups() = default;
  // Rows of `row_bytes` bytes; no groups: the whole token is to be passed twice.
  OnlineGroups(int source_count, std::int64_t row_bytes) : sources(source_count) {
    if (source_count * row_bytes <= kTokenBytes) return;
    const auto rows = std::clamp<std::int64_t>(kGroupBytes / row_bytes, 1, kMostRows);
    count = static_cast<int>(CeilDiv(source_count, rows));
  }

  int First(int group) const {
    return group * (sources / count) + std::min(group, sources % count);
  }
  int Rows(int group) const { return First(group + 1) - First(group); }

  int sources = 0;
  int count = 0;
};

// Scores of a token, and the weights of its latest group beside the sums so far.
struct OnlineSoftmax {
  float scores[kMaxSources] = {};
  float weights[kMaxSources] = {};
  float largest = -INFINITY;
  float total = 0;

  // Takes scores[first], ..., scores[first + rows - 1]. Returns the factor that what was summed
  // before has to be scaled with.
  float Take(const AttnResidualKernels& kernels, int first, int rows) {
    float top = largest;
    for (int l = first; l < first + rows; ++l) top = std::max(top, scores[l]);
    float factor = 1;
    if (top > largest) {
      kernels.exp_minus(&largest, top, 1, &factor);
      total *= factor;
    }
    largest = top;
    // Below every finite score: no weight, unless all of them are.
    const float base = top == -INFINITY ? 0.0f : top;
    kernels.exp_minus(scores + first, base, rows, weights);
    for (int l = 0; l < rows; ++l) total += weights[l];
    return factor;
  }
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_ATTN_RES_ONLINE_H_
