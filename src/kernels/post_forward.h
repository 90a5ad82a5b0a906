// The forward of mhc_post for one token at a time, from and to rows of any strides; and what its
// backward shares with it.
#ifndef ANABRANCH_SRC_KERNELS_POST_FORWARD_H_
#define ANABRANCH_SRC_KERNELS_POST_FORWARD_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/tensor.h"
#include "src/core/tokens.h"
#include "src/kernels/stream_mix.h"

namespace anabranch {

// Rows that are not dense along D are copied piece by piece into dense ones on the stack.
inline constexpr std::int64_t kPiece = 128;
inline constexpr std::size_t kPieceBytes = kPiece * sizeof(float);

// Copies `count` elements from `begin` on of a token's first `rows` rows into dense rows of kPiece
// elements, and back.
void GatherPiece(const TokenRows& from, std::int64_t token, std::int64_t begin, std::int64_t count,
                 int rows, std::byte* to);
void ScatterPiece(const std::byte* from, std::int64_t token, std::int64_t begin, std::int64_t count,
                  int rows, const TokenRows& to);

// Dense copies of one token's h_post and h_res.
struct MixCoefficients {
  MixCoefficients(const TokenRows& h_post, const TokenRows& h_res, std::int64_t token, int n);
  const float* matrix() const { return mixes ? res : nullptr; }

  float post[kMaxStreams];
  float res[kMaxStreams * kMaxStreams];
  bool mixes;  // false: h_res is absent
};

class PostForward {
 public:
  // x [*, n, D], h_res [*, n, n], [*, n*n] or absent, h_out [*, D], h_post [*, n].
  PostForward(const TensorView& x, const TensorView& h_res, const TensorView& h_out,
              const TensorView& h_post, Target target);

  // Whether y can be written with non-temporal stores.
  bool StreamsTo(const TokenRows& y) const { return dense_ && y.stride1 == 1; }

  // y = h_post h_out + h_res^T x of one token.
  void Run(std::int64_t token, const TokenRows& y, bool streaming) const;

  const StreamMixKernels& kernels() const { return kernels_; }

 private:
  // From a token to the next, in elements; 0 from the last one.
  std::ptrdiff_t Next(const TokenRows& rows, std::int64_t token) const {
    return token + 1 < tokens_ ? rows.index.Offset(token + 1) - rows.index.Offset(token) : 0;
  }

  std::int64_t tokens_;
  int n_;
  std::int64_t d_;
  StreamMixKernels kernels_;
  TokenRows x_, h_res_, h_out_, h_post_;
  bool dense_;
};

}  // namespace anabranch

#endif  // ANABRANCH_SRC_KERNELS_POST_FORWARD_H_
