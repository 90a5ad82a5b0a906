// The backward of the projection for a tile of tokens: grad_x and grad_phi in one reading of x, and
// the dot products that the gates' gradients need first.
//
// phi (times gamma) and its gradient are kept in units of 32 elements of D,
// [unit][stream][row][32 lanes]: one unit of all rows is a few KiB, so that everything a unit needs
// stays in L1 while the tokens of a tile pass.
//
// Orders: grad_x adds the rows ascending, then the RMS term, then grad_h_in * h_pre, then
// grad_x_post; grad_phi adds the tokens of a tile ascending, starting from zero, then the tiles.
#ifndef ANABRANCH_SRC_KERNELS_PROJECTION_GRAD_H_
#define ANABRANCH_SRC_KERNELS_PROJECTION_GRAD_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/cpu.h"
#include "anabranch/dtype.h"

namespace anabranch {

inline constexpr int kGradTile = 48;    // tokens
inline constexpr int kGradBlock = 128;  // elements of D of one call

// sums[i] += x[i] . g, 16 lanes each; the caller zeroes them. All pieces but the last a multiple
// of 32 elements.
struct StreamDots {
  const void* x;  // [n, d], lanes x_lane elements apart
  std::ptrdiff_t x_lane;
  const void* g;  // [d]
  int n;
  std::int64_t d;
  float* sums;  // [n][16]
};

// A block of D of phi (all streams) to units and back.
struct GradParameters {
  const float* phi;  // row 0, stream 0, first element of the block
  std::ptrdiff_t row_stride;
  std::ptrdiff_t stream_stride;
  std::ptrdiff_t stride;
  const float* gamma;  // stream 0, first element, or null
  std::ptrdiff_t gamma_stream;
  std::ptrdiff_t gamma_stride;
  int n;
  int rows;
  int count;         // elements of D, 1 .. kGradBlock
  float* phi_units;  // out of pack_units
  // Of finish_units: grad_units[...] is sum over tokens of d_mix * x, without gamma.
  const float* grad_units;
  float* grad_phi;  // like phi, overwritten
  std::ptrdiff_t grad_row_stride;
  std::ptrdiff_t grad_stream_stride;
  std::ptrdiff_t grad_stride;
  float* grad_gamma;  // like gamma, overwritten, or null
  std::ptrdiff_t grad_gamma_stream;
  std::ptrdiff_t grad_gamma_stride;
};

// d_mix of a tile in the orders that grad_units reads: [group of tokens][row][token] and
// [group of rows][token][row].
struct GradMix {
  const float* d_mix;  // [tokens][rows]
  int tokens;
  int rows;
  float* by_row;    // tokens * rows
  float* by_token;  // tokens * rows
};

struct GradUnits {
  const void* const* x;  // [tokens], stream 0, first element of the block
  std::ptrdiff_t x_lane;
  const void* const* grad_h_in;    // [tokens]
  const void* const* grad_x_post;  // [tokens] like x, or null
  std::ptrdiff_t post_lane;
  void* const* grad_x;  // [tokens] like x, overwritten
  std::ptrdiff_t grad_x_lane;
  bool stream;  // grad_x goes past the caches; all its rows begin at multiples of 64 bytes
  const void* const* next;  // [tokens] x of the next call, for prefetching, or null
  const float* by_row;      // of GradMix
  const float* by_token;
  const float* rms;    // [tokens] factor of x in grad_x
  const float* h_pre;  // [tokens][n]
  int tokens;          // 1 .. kGradTile
  int n;
  int rows;
  int count;         // elements of D, 1 .. kGradBlock
  const float* phi;  // units
  float* grad_phi;   // units, added to
};

struct GradUnitsKernels {
  void (*pack_mix)(const GradMix&);
  void (*grad_units)(const GradUnits&);
};
GradUnitsKernels GetGradUnitsKernels(DType dtype, Target target);

struct ProjectionGradKernels {
  void (*dots)(const StreamDots&);
  void (*finish_sums)(const float* sums, int count, float* out);
  void (*pack_units)(const GradParameters&);
  void (*finish_units)(const GradParameters&);
  GradUnitsKernels units;
  Target target;
};

// Kernels for an activation dtype (not kFloat64) and a resolved target.
ProjectionGradKernels GetProjectionGradKernels(DType dtype, Target target);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_PROJECTION_GRAD_H_
