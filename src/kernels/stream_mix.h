// Arithmetic of mhc_post for one token: mixing n residual streams with an n x n matrix and adding a
// sublayer's output, forward and backward.
#ifndef ANABRANCH_SRC_KERNELS_STREAM_MIX_H_
#define ANABRANCH_SRC_KERNELS_STREAM_MIX_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/cpu.h"
#include "anabranch/dtype.h"

namespace anabranch {

inline constexpr int kMaxStreams = 16;

// Rows of one token, each `d` adjacent elements; lane strides in elements. Coefficients have gone
// through CleanNan.
struct StreamMixForward {
  const void* x;  // [n, d]
  std::ptrdiff_t x_lane;
  const void* h_out;    // [d]
  const float* h_post;  // [n]
  const float* h_res;   // [n, n] dense, or null
  void* y;              // [n, d], overwritten; may be x
  std::ptrdiff_t y_lane;
  int n;
  std::int64_t d;
  bool streaming;  // write y with non-temporal stores
  // From this token's x and h_out to the next token's, in elements: for prefetching only.
  std::ptrdiff_t x_next = 0;
  std::ptrdiff_t h_out_next = 0;
};

struct StreamMixBackward {
  const void* grad_y;  // [n, d]
  std::ptrdiff_t grad_y_lane;
  const void* x;  // [n, d]
  std::ptrdiff_t x_lane;
  const void* h_out;    // [d]
  const float* h_post;  // [n]
  const float* h_res;   // [n, n] dense, or null
  void* grad_x;         // [n, d], overwritten; may be grad_y
  std::ptrdiff_t grad_x_lane;
  void* grad_h_out;  // [d], overwritten
  // Running sums along d, 16 lanes each, kept between calls for pieces of one token (all pieces but
  // the last a multiple of 32 elements): n*n of grad_h_res (j major), then n of grad_h_post. The
  // caller zeroes them before the first piece.
  float* sums;
  bool want_grad_h_res;
  int n;
  std::int64_t d;
  bool streaming;
  // From this token's rows to the next token's, in elements: for prefetching only.
  std::ptrdiff_t grad_y_next = 0;
  std::ptrdiff_t x_next = 0;
  std::ptrdiff_t h_out_next = 0;
};

struct StreamMixKernels {
  void (*forward)(const StreamMixForward&);
  void (*backward)(const StreamMixBackward&);
  // out[k] = sum of the 16 lanes at sums + 16 k, for k < count.
  void (*finish_sums)(const float* sums, int count, float* out);
  // Orders non-temporal stores before what follows.
  void (*flush)();
  const char* name;  // "n4", "generic", ...
  Target target;     // that this code was compiled for
};

// Kernels for an activation dtype (not kFloat64) and a resolved target.
StreamMixKernels GetStreamMixKernels(DType dtype, int n, Target target);

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_STREAM_MIX_H_
