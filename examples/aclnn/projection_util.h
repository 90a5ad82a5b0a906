// What the examples of mhc_pre, mhc_pre_sinkhorn and mhc_head share: a text as a stream,
// parameters, and the definition of the gates in double.
#ifndef ANABRANCH_EXAMPLES_ACLNN_PROJECTION_UTIL_H_
#define ANABRANCH_EXAMPLES_ACLNN_PROJECTION_UTIL_H_

#include <algorithm>

#include "sample_util.h"

static const int64_t kLanes = 4;
static const int64_t kHidden = 128;
static const int64_t kWidth = kLanes * kHidden;

// The bytes of a text as a stream [tokens, kLanes, kHidden] in BF16.
inline std::vector<uint16_t> TextStream(const std::string& text) {
  std::vector<uint16_t> x;
  for (std::size_t t = 0; t < text.size(); ++t) {
    const uint64_t byte = static_cast<unsigned char>(text[t]);
    for (int64_t k = 0; k < kWidth; ++k) x.push_back(ToBf16(Embed(byte * 4096 + k)));
  }
  return x;
}

// `rows` rows of a projection at scale 1/sqrt(K).
inline std::vector<float> Projection(int64_t rows) {
  std::vector<float> phi;
  for (int64_t k = 0; k < rows * kWidth; ++k) {
    phi.push_back(Embed(77777 + k) / std::sqrt(static_cast<float>(kWidth)));
  }
  return phi;
}

inline double Sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

// r * (phi . x) of one token, in double.
inline std::vector<double> Project(const uint16_t* x, const std::vector<float>& phi, int64_t rows) {
  double square = 0;
  for (int64_t k = 0; k < kWidth; ++k) {
    square += static_cast<double>(FromBf16(x[k])) * FromBf16(x[k]);
  }
  const double r = 1 / std::sqrt(square / kWidth + 1e-6);
  std::vector<double> w(rows);
  for (int64_t f = 0; f < rows; ++f) {
    for (int64_t k = 0; k < kWidth; ++k)
      w[f] += static_cast<double>(phi[f * kWidth + k]) * FromBf16(x[k]);
    w[f] *= r;
  }
  return w;
}

// Largest error of the collapsed stream against sum_i gate_i x_i, relative to max(1, |value|).
inline double CollapseError(const uint16_t* x, const double* gates, const uint16_t* got) {
  double worst = 0;
  for (int64_t d = 0; d < kHidden; ++d) {
    double want = 0;
    for (int64_t i = 0; i < kLanes; ++i) want += gates[i] * FromBf16(x[i * kHidden + d]);
    worst = std::max(worst, std::fabs(FromBf16(got[d]) - want) / std::max(1.0, std::fabs(want)));
  }
  return worst;
}

// Prints the verdict; the exit code of the program.
inline int Verdict(double activations, double coefficients) {
  const bool good = activations <= 1.01 / 256 && coefficients <= 1e-5;
  std::printf("largest error against a double loop: %.3g (activations), %.3g (coefficients): %s\n",
              activations, coefficients, good ? "ok" : "WRONG");
  return good ? 0 : 1;
}

#endif  // ANABRANCH_EXAMPLES_ACLNN_PROJECTION_UTIL_H_
