// The operator table. `anabranch check`, `anabranch bench`, the parameterised tests and the support
// table of the docs are made from it and know nothing else about an operator: to add one, write its
// folder with an entry.cc and add a line to catalog.cc.
#ifndef ANABRANCH_SRC_OPS_CATALOG_H_
#define ANABRANCH_SRC_OPS_CATALOG_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "anabranch/context.h"
#include "anabranch/plan.h"
#include "anabranch/status.h"
#include "anabranch/tensor.h"

namespace anabranch {

// One choice of shapes and attributes; fields that an operator does not use are ignored.
struct Case {
  std::int64_t batch = 1;  // tokens T = batch * seq, laid out [batch, seq, ...]
  std::int64_t seq = 1;
  std::int64_t n = 4;             // residual streams
  std::int64_t d = 64;            // hidden size D
  std::int64_t sources = 2;       // L, of attention residuals
  std::int64_t num_iters = 20;    // of the Sinkhorn iteration
  DType dtype = DType::kFloat32;  // of activations; kFloat64: everything, on the reference
  int variant = 0;                // index into OperatorEntry::variants
  double logit_scale = 1;         // standard deviation of logits (test inputs only)

  std::int64_t tokens() const { return batch * seq; }
};

// One tensor argument, in the order in which prepare takes them. Values for tests are
// mean + scale * N(0,1).
struct TensorSpec {
  std::string name;
  bool output = false;
  DType dtype = DType::kFloat32;
  Dims sizes;
  double mean = 0;
  double scale = 1;
  // Backward passes: the forward's tensor whose gradient this is (an output of it for an input
  // here, an input of it for an output here), or empty.
  std::string gradient_of = {};
  // Outputs: allowed error against the reference is half a unit in the last place of dtype at the
  // reference's value, plus tolerance * 2^-24 * max(magnitude, largest reference value): magnitude
  // is what a sum of typical test values comes to, tolerance grows with the length of the sum.
  double magnitude = 1;
  double tolerance = 16;
  // Inputs: tests may give it 0 strides. False for caches whose values belong to each other: mixed
  // up, they make a call ill-conditioned beyond any tolerance.
  bool expandable = true;
};

// What a call moves and computes at the least, and which roof bounds it.
struct Cost {
  enum class Roof { kStream, kFma };
  Roof roof = Roof::kStream;
  double bytes = 0;
  double flops = 0;
  // kStream: streams read and written and their length, for measuring the roof.
  int reads = 0;
  int writes = 0;
  double stream_bytes = 0;
};

struct OperatorEntry {
  const char* name;     // unique: "mhc_post", "mhc_post_backward"
  const char* op;       // the family: "mhc_post"
  const char* pass;     // "forward" or "backward"
  const char* summary;  // one line
  // What the attributes and optional arguments can be; a backward has its forward's list.
  std::vector<const char*> variants;
  // Whether the case is within the operator's limits (n, sources, ...).
  bool (*supports)(const Case&);
  std::vector<TensorSpec> (*tensors)(const Case&);
  // `tensors` are in the order of the specs.
  Status (*prepare)(const Case&, std::span<const TensorView> tensors, Plan*, const Context&);
  Cost (*cost)(const Case&);
  // Shapes that `anabranch bench` runs unless told otherwise.
  std::vector<Case> bench_cases;
};

// All operators, a backward right behind its forward.
std::span<const OperatorEntry> Operators();

// By name, or null.
const OperatorEntry* FindOperator(const std::string& name);

// The forward of a backward; the entry itself if it is a forward.
const OperatorEntry* ForwardOf(const OperatorEntry& entry);

// Whether the C calls, and the operators of PyTorch, can express this form of a call. What is true
// here is called through that face by a test, so the answers cannot be wrong in silence.
bool InC(const OperatorEntry& entry, const Case& c);
bool InPyTorch(const OperatorEntry& entry, const Case& c);

// For entries: dtype of coefficients and statistics beside these activations.
inline DType CoefficientDType(const Case& c) {
  return c.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

}  // namespace anabranch

#endif  // ANABRANCH_SRC_OPS_CATALOG_H_
