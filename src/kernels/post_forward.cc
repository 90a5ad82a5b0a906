#include "src/kernels/post_forward.h"

#include <algorithm>

#include "src/core/half.h"

namespace anabranch {

void GatherPiece(const TokenRows& from, std::int64_t token, std::int64_t begin, std::int64_t count,
                 int rows, std::byte* to) {
  const auto element = static_cast<std::int64_t>(from.element);
  for (int i = 0; i < rows; ++i) {
    const std::byte* row = from.Token(token) + (i * from.stride0 + begin * from.stride1) * element;
    CopyStrided(to + i * kPiece * element, 1, row, from.stride1, count, from.element);
  }
}

void ScatterPiece(const std::byte* from, std::int64_t token, std::int64_t begin, std::int64_t count,
                  int rows, const TokenRows& to) {
  const auto element = static_cast<std::int64_t>(to.element);
  for (int i = 0; i < rows; ++i) {
    std::byte* row = to.Token(token) + (i * to.stride0 + begin * to.stride1) * element;
    CopyStrided(row, to.stride1, from + i * kPiece * element, 1, count, to.element);
  }
}

MixCoefficients::MixCoefficients(const TokenRows& h_post, const TokenRows& h_res,
                                 std::int64_t token, int n)
    : mixes(h_res.defined()) {
  for (int i = 0; i < n; ++i) post[i] = CleanNan(h_post.At<float>(token, i));
  for (int j = 0; mixes && j < n; ++j) {
    for (int i = 0; i < n; ++i) res[j * n + i] = CleanNan(h_res.At<float>(token, j, i));
  }
}

PostForward::PostForward(const TensorView& x, const TensorView& h_res, const TensorView& h_out,
                         const TensorView& h_post, Target target)
    : tokens_(CountTokens(x.sizes, x.rank() - 2)),
      n_(static_cast<int>(x.sizes[x.rank() - 2])),
      d_(x.sizes[x.rank() - 1]),
      kernels_(GetStreamMixKernels(x.dtype, n_, target)),
      x_(x, 2),
      h_res_(TokenRows::Matrix(h_res, x.rank() - 2, n_)),
      h_out_(h_out, 1),
      h_post_(h_post, 1),
      dense_(x_.stride1 == 1 && h_out_.stride1 == 1) {}

void PostForward::Run(std::int64_t token, const TokenRows& y, bool streaming) const {
  const MixCoefficients c(h_post_, h_res_, token, n_);
  if (StreamsTo(y)) {
    kernels_.forward({x_.Token(token), x_.stride0, h_out_.Token(token), c.post, c.matrix(),
                      y.Token(token), y.stride0, n_, d_, streaming, Next(x_, token),
                      Next(h_out_, token)});
    return;
  }
  alignas(64) std::byte x[kMaxStreams * kPieceBytes];
  alignas(64) std::byte h_out[kPieceBytes];
  for (std::int64_t begin = 0; begin < d_; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, d_ - begin);
    GatherPiece(x_, token, begin, count, n_, x);
    GatherPiece(h_out_, token, begin, count, 1, h_out);
    kernels_.forward({x, kPiece, h_out, c.post, c.matrix(), x, kPiece, n_, count, false});
    ScatterPiece(x, token, begin, count, n_, y);
  }
}

}  // namespace anabranch
