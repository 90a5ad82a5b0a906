// A training step's calls in the way published programs make them: aclnnMhcPreSinkhorn with
// needBackward, then aclnnMhcPreSinkhornBackward from its caches. All shapes are the published
// ones, once for x in BSND and once in TND. The gradient of a bias is checked against differences
// of the forward, and both layouts must give the same numbers.
#include "acl/acl.h"
#include "aclnnop/aclnn_mhc_pre_sinkhorn.h"
#include "aclnnop/aclnn_mhc_pre_sinkhorn_backward.h"
#include "projection_util.h"

static const int64_t kRows = kLanes * kLanes + 2 * kLanes;
static const int64_t kIterations = 20;

typedef std::vector<int64_t> Shape;

// [first..., tokens..., last...].
static Shape Around(const Shape& first, const Shape& tokens, const Shape& last) {
  Shape shape = first;
  shape.insert(shape.end(), tokens.begin(), tokens.end());
  shape.insert(shape.end(), last.begin(), last.end());
  return shape;
}

// A tensor of zeros in device memory.
template <class T>
static std::vector<T> Zeros(const Shape& shape) {
  std::size_t count = 1;
  for (std::size_t k = 0; k < shape.size(); ++k) count *= static_cast<std::size_t>(shape[k]);
  return std::vector<T>(count);
}

struct Output : DeviceTensor {
  explicit Output(const Shape& shape) : DeviceTensor(Zeros<float>(shape), shape, ACL_FLOAT) {}
};
struct HalfOutput : DeviceTensor {
  explicit HalfOutput(const Shape& shape) : DeviceTensor(Zeros<uint16_t>(shape), shape, ACL_BF16) {}
};

struct Step {
  std::vector<float> h_res, grad_phi, grad_alpha, grad_bias;
  std::vector<uint16_t> h_in, grad_x;
};

static void* Workspace(uint64_t size) {
  void* workspace = nullptr;
  if (size > 0) CHECK(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
  return workspace;
}

// `tokens` is (B, S) or (T); the gradient that comes back to hRes is `grad_h_res`, to the others 0.
static Step Train(const Shape& tokens, const std::vector<uint16_t>& x,
                  const std::vector<float>& phi, const std::vector<float>& bias,
                  const std::vector<float>& grad_h_res, aclrtStream stream) {
  const Shape none;
  DeviceTensor x_dev(x, Around(none, tokens, {kLanes, kHidden}), ACL_BF16);
  DeviceTensor phi_dev(phi, {kRows, kWidth}, ACL_FLOAT);
  DeviceTensor alpha_dev(std::vector<float>(3, 1.1f), {3}, ACL_FLOAT);
  DeviceTensor bias_dev(bias, {kRows}, ACL_FLOAT);
  HalfOutput hin(Around(none, tokens, {kHidden}));
  Output h_post(Around(none, tokens, {kLanes}));
  Output h_res(Around(none, tokens, {kLanes * kLanes}));
  Output h_pre(Around(none, tokens, {kLanes}));
  Output hc_before_norm(Around(none, tokens, {kRows}));
  Output inv_rms(Around(none, tokens, {1}));
  Output sum_out(Around({2 * kIterations}, tokens, {kLanes}));
  Output norm_out(Around({2 * kIterations}, tokens, {kLanes, kLanes}));
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnMhcPreSinkhornGetWorkspaceSize(
      x_dev.tensor, phi_dev.tensor, alpha_dev.tensor, bias_dev.tensor, kLanes, kIterations, 1e-6,
      1e-6, true, hin.tensor, h_post.tensor, h_res.tensor, h_pre.tensor, hc_before_norm.tensor,
      inv_rms.tensor, sum_out.tensor, norm_out.tensor, &size, &executor));
  void* workspace = Workspace(size);
  CHECK(aclnnMhcPreSinkhorn(workspace, size, executor, stream));

  HalfOutput grad_hin(Around(none, tokens, {kHidden}));
  Output grad_h_post(Around(none, tokens, {kLanes}));
  DeviceTensor grad_h_res_dev(grad_h_res, Around(none, tokens, {kLanes * kLanes}), ACL_FLOAT);
  HalfOutput grad_x(Around(none, tokens, {kLanes, kHidden}));
  Output grad_phi({kRows, kWidth}), grad_alpha({3}), grad_bias({kRows});
  uint64_t backward_size = 0;
  CHECK(aclnnMhcPreSinkhornBackwardGetWorkspaceSize(
      grad_hin.tensor, grad_h_post.tensor, grad_h_res_dev.tensor, x_dev.tensor, phi_dev.tensor,
      alpha_dev.tensor, bias_dev.tensor, h_pre.tensor, hc_before_norm.tensor, inv_rms.tensor,
      sum_out.tensor, norm_out.tensor, 1e-6, grad_x.tensor, grad_phi.tensor, grad_alpha.tensor,
      grad_bias.tensor, &backward_size, &executor));
  void* backward_workspace = Workspace(backward_size);
  CHECK(aclnnMhcPreSinkhornBackward(backward_workspace, backward_size, executor, stream));
  CHECK(aclrtSynchronizeStream(stream));
  if (workspace != nullptr) CHECK(aclrtFree(workspace));
  if (backward_workspace != nullptr) CHECK(aclrtFree(backward_workspace));

  Step step;
  step.h_in = hin.ToHost<uint16_t>();
  step.h_res = h_res.ToHost<float>();
  step.grad_x = grad_x.ToHost<uint16_t>();
  step.grad_phi = grad_phi.ToHost<float>();
  step.grad_alpha = grad_alpha.ToHost<float>();
  step.grad_bias = grad_bias.ToHost<float>();
  return step;
}

static double Loss(const Step& step, const std::vector<float>& weights) {
  double loss = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    loss += static_cast<double>(step.h_res[k]) * weights[k];
  }
  return loss;
}

static bool Same(const Step& a, const Step& b) {
  return a.h_in == b.h_in && a.h_res == b.h_res && a.grad_x == b.grad_x &&
         a.grad_phi == b.grad_phi && a.grad_alpha == b.grad_alpha && a.grad_bias == b.grad_bias;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
    return 2;
  }
  const int64_t kBatches = 2;
  std::string text = ReadText(argv[1], 64);
  text.resize(text.size() / kBatches * kBatches, ' ');
  const int64_t length = static_cast<int64_t>(text.size());
  if (length == 0) return 2;
  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(0));
  aclrtStream stream = nullptr;
  CHECK(aclrtCreateStream(&stream));

  const std::vector<uint16_t> x = TextStream(text);
  const std::vector<float> phi = Projection(kRows);
  std::vector<float> bias, weights;
  for (int64_t f = 0; f < kRows; ++f) bias.push_back(0.05f * (f % 7) - 0.1f);
  for (int64_t k = 0; k < length * kLanes * kLanes; ++k) weights.push_back(Embed(999 + k));

  const Shape bsnd = {kBatches, length / kBatches}, tnd = {length};
  const Step step = Train(bsnd, x, phi, bias, weights, stream);
  const bool same = Same(step, Train(tnd, x, phi, bias, weights, stream));

  double worst = 0;
  for (int64_t f = 2 * kLanes; f < kRows; f += 5) {
    double side[2];
    for (int s = 0; s < 2; ++s) {
      std::vector<float> moved = bias;
      moved[f] += s == 0 ? 0.0625f : -0.0625f;
      side[s] = Loss(Train(tnd, x, phi, moved, weights, stream), weights);
    }
    const double difference = (side[0] - side[1]) / 0.125;
    worst = std::max(worst, std::fabs(difference - step.grad_bias[f]));
  }
  std::printf("gradient of bias[%d]: %.5f\n", static_cast<int>(2 * kLanes),
              step.grad_bias[2 * kLanes]);
  const bool good = same && worst <= 2e-3;
  std::printf("BSND and TND: %s; largest error of a gradient against differences %.3g: %s\n",
              same ? "the same bits" : "DIFFERENT", worst, good ? "ok" : "WRONG");

  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
  return good ? 0 : 1;
}
