// aclnnMhcSinkhorn and aclnnMhcSinkhornBackward. Their flat, padded caches are strided views of the
// library's: [2*iters, T, n, m] and [2*iters, T, m], of which the first n of m are used.
#include "aclnnop/aclnn_mhc_sinkhorn.h"

#include <initializer_list>
#include <string>

#include "aclnnop/aclnn_mhc_sinkhorn_backward.h"
#include "anabranch/mhc_sinkhorn.h"
#include "src/acl/message.h"
#include "src/acl/op_face.h"
#include "src/core/check.h"
#include "src/ops/mhc_spec.h"

namespace anabranch::acl {
namespace {

constexpr std::int64_t kMaxIters = 100;  // of the backward call

constexpr std::int64_t kMaxStreams = 16;

struct FlatSizes {
  Dims leading;  // of the matrices
  std::int64_t tokens = 1;
  std::int64_t n = 0;
  std::int64_t padded = 0;  // n rounded up to a multiple of 8
};

// False: n is outside the operator's limits, and the library's own check must say so.
bool SizesOf(const TensorView& x, FlatSizes* s) {
  for (int i = 0; i + 2 < x.rank(); ++i) {
    s->leading.push_back(x.sizes[i]);
    if (__builtin_mul_overflow(s->tokens, x.sizes[i], &s->tokens)) return false;
  }
  s->n = x.sizes[x.rank() - 1];
  if (s->n < 1 || s->n > kMaxStreams) return false;
  s->padded = (s->n + 7) / 8 * 8;
  return true;
}

// False: the product does not fit 63 bits.
bool Product(std::initializer_list<std::int64_t> factors, std::int64_t* product) {
  *product = 1;
  bool fits = true;
  for (std::int64_t factor : factors) {
    fits = !__builtin_mul_overflow(*product, factor, product) && fits;
  }
  return fits;
}

Status Invalid(const std::string& text) { return Status(StatusCode::kInvalidArgument, text); }

// [2*iters, *, inner...], the matrices `matrix` elements apart, of a flat cache of stride `stride`.
TensorView Steps(const TensorView& flat, const FlatSizes& s, std::int64_t num_iters,
                 std::int64_t matrix, std::int64_t stride, bool norms) {
  TensorView view = flat;
  view.sizes = view.strides = Dims();
  const auto add = [&](std::int64_t size, std::int64_t step) {
    view.sizes.push_back(size);
    view.strides.push_back(step * stride);
  };
  const Dims steps = ContiguousStrides(s.leading);
  add(2 * num_iters, s.tokens * matrix);
  for (int i = 0; i < s.leading.rank; ++i) add(s.leading[i], steps[i] * matrix);
  if (norms) add(s.n, s.padded);
  add(s.n, 1);
  return view;
}

// Turns the flat caches into the library's views; absent ones stay absent.
Status Unflatten(const FlatSizes& s, std::int64_t num_iters, TensorView* norm, TensorView* sum) {
  if (!norm->defined() && !sum->defined()) return Status();
  if (!norm->defined() || !sum->defined()) {
    return Invalid(std::string(norm->defined() ? "sumOut" : "normOut") +
                   " is null, expected both caches or none");
  }
  const std::int64_t row = s.n * s.padded;
  const auto flat = [&](const char* name, const TensorView& t, std::int64_t count) {
    if (t.rank() == 1 && t.sizes[0] == count) return Status();
    return Invalid(std::string(name) + " has shape " + ToString(t.sizes) + ", expected (" +
                   std::to_string(count) + ",)");
  };
  std::int64_t norms = 0;
  std::int64_t sums = 0;
  const bool fit = Product({2, num_iters, s.tokens, row}, &norms) &&
                   Product({2, num_iters, s.tokens, s.padded}, &sums);
  if (!fit) {
    return Invalid("numIters is " + std::to_string(num_iters) +
                   ", expected caches of fewer than 2^63 elements");
  }
  if (Status status = flat("normOut", *norm, norms); !status.ok()) return status;
  if (Status status = flat("sumOut", *sum, sums); !status.ok()) return status;
  // Without elements a stride may be anything, and is not multiplied.
  const std::int64_t a = norms == 0 ? 0 : norm->strides[0];
  const std::int64_t b = sums == 0 ? 0 : sum->strides[0];
  std::int64_t extent = 0;
  if (!Product({norms, a}, &extent) || !Product({sums, b}, &extent)) {
    return Invalid("normOut and sumOut have strides " + std::to_string(a) + " and " +
                   std::to_string(b) + ", expected an extent below 2^63 elements");
  }
  *norm = Steps(*norm, s, num_iters, row, a, true);
  *sum = Steps(*sum, s, num_iters, s.padded, b, false);
  return Status();
}

// The number of iterations that a cache of the backward holds.
Status CountIters(const FlatSizes& s, const TensorView& norm, std::int64_t* num_iters) {
  std::int64_t one = 0;
  if (!Product({2, s.tokens, s.n, s.padded}, &one)) {
    return Invalid("gradOutput has shape of " + std::to_string(s.tokens) +
                   " matrices, expected caches of fewer than 2^63 "
                   "elements");
  }
  const std::int64_t count = norm.numel();
  *num_iters = one == 0 ? 1 : count / one;  // without tokens any number is right
  if (one == 0 || (count % one == 0 && *num_iters >= 1 && *num_iters <= kMaxIters)) return Status();
  return Invalid("normOut has " + std::to_string(count) + " elements, expected 1..100 times " +
                 std::to_string(one));
}

Status PrepareForward(const Views& t, float eps, std::int64_t num_iters, Plan* plan) {
  MhcSinkhornArgs args;
  args.logits = t[0];
  args.h_res = t[1];
  args.norm_out = t[2];
  args.sum_out = t[3];
  args.options.sinkhorn_eps = static_cast<double>(eps);
  args.options.num_iters = num_iters;
  args.softmax_cache_without_eps = true;
  const bool sane = num_iters >= 1 && num_iters <= specs::kMaxIterations;  // or Prepare says so
  FlatSizes s;
  if (sane && SizesOf(t[0], &s)) {
    args.row_padding = s.padded - s.n;
    // The padding is written, too, and is no part of the views below.
    Checker checker("");
    const NamedTensor input[] = {{"x", t[0]}};
    const NamedTensor outputs[] = {{"output", t[1], "x"}, {"normOut", t[2]}, {"sumOut", t[3]}};
    checker.Memory(input, outputs);
    if (!checker.ok()) return checker.status();
    Status status = Unflatten(s, num_iters, &args.norm_out, &args.sum_out);
    if (!status.ok()) return status;
  }
  return Prepare(args, plan, CallContext());
}

Status PrepareBackward(const Views& t, Plan* plan) {
  MhcSinkhornBackwardArgs args;
  args.grad_h_res = t[0];
  args.norm_out = t[1];
  args.sum_out = t[2];
  args.grad_logits = t[3];
  args.softmax_cache_without_eps = true;
  FlatSizes s;
  if (!SizesOf(t[0], &s)) return Prepare(args, plan, CallContext());
  if (Status status = CountIters(s, t[1], &args.options.num_iters); !status.ok()) return status;
  const Status status = Unflatten(s, args.options.num_iters, &args.norm_out, &args.sum_out);
  return status.ok() ? Prepare(args, plan, CallContext()) : status;
}

Facts SinkhornFacts(const TensorView& x, std::int64_t num_iters) {
  return {.op = "mhc_sinkhorn",
          .n = x.sizes[x.rank() - 1],
          .tnd = x.rank() == 3,
          .num_iters = num_iters};
}

}  // namespace
}  // namespace anabranch::acl

using anabranch::Plan;
using anabranch::acl::CountIters;
using anabranch::acl::FlatSizes;
using anabranch::acl::MakeExecutor;
using anabranch::acl::OpCall;
using anabranch::acl::PrepareBackward;
using anabranch::acl::PrepareForward;
using anabranch::acl::RunExecutor;
using anabranch::acl::SinkhornFacts;
using anabranch::acl::SizesOf;
using anabranch::acl::Views;

extern "C" {

aclnnStatus aclnnMhcSinkhornGetWorkspaceSize(const aclTensor* x, float eps, int64_t numIters,
                                             aclTensor* output, aclTensor* normOut,
                                             aclTensor* sumOut, uint64_t* workspaceSize,
                                             aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnMhcSinkhorn";
  call.tensors = {
      {"x", x}, {"output", output}, {"normOut", normOut, false}, {"sumOut", sumOut, false}};
  call.prepare = [eps, numIters](const Views& t, Plan* plan) {
    return PrepareForward(t, eps, numIters, plan);
  };
  call.layout_tensor = 0;
  call.inner = 2;
  call.facts = [numIters](const Views& t) { return SinkhornFacts(t[0], numIters); };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcSinkhorn");
}

aclnnStatus aclnnMhcSinkhorn(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                             aclrtStream stream) {
  return RunExecutor("aclnnMhcSinkhorn", workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnMhcSinkhornBackwardGetWorkspaceSize(const aclTensor* gradOutput,
                                                     const aclTensor* normOut,
                                                     const aclTensor* sumOut, aclTensor* out,
                                                     uint64_t* workspaceSize,
                                                     aclOpExecutor** executor) try {
  OpCall call;
  call.name = "aclnnMhcSinkhornBackward";
  call.tensors = {
      {"gradOutput", gradOutput}, {"normOut", normOut}, {"sumOut", sumOut}, {"out", out}};
  call.prepare = [](const Views& t, Plan* plan) { return PrepareBackward(t, plan); };
  call.layout_tensor = 0;
  call.inner = 2;
  call.facts = [](const Views& t) {
    std::int64_t num_iters = 0;
    FlatSizes s;
    const bool counted = SizesOf(t[0], &s) && CountIters(s, t[1], &num_iters).ok();
    return SinkhornFacts(t[0], counted ? num_iters : 0);
  };
  return MakeExecutor(call, workspaceSize, executor);
} catch (...) {
  return anabranch::acl::Caught("aclnnMhcSinkhornBackward");
}

aclnnStatus aclnnMhcSinkhornBackward(void* workspace, uint64_t workspaceSize,
                                     aclOpExecutor* executor, aclrtStream stream) {
  return RunExecutor("aclnnMhcSinkhornBackward", workspace, workspaceSize, executor, stream);
}

}  // extern "C"
