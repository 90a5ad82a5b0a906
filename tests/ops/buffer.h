// Tensors and calls of tests that are written out by hand.
#ifndef ANABRANCH_TESTS_OPS_BUFFER_H_
#define ANABRANCH_TESTS_OPS_BUFFER_H_

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "anabranch/mhc.h"
#include "src/tools/harness/tensors.h"

namespace anabranch {

// Memory with a dtype and a shape. Outputs start as 0xff, which is NaN in every dtype: what is not
// written differs from itself.
struct Buffer {
  Buffer() = default;
  Buffer(DType type, const Dims& sizes)
      : dtype(type),
        shape(sizes),
        bytes(static_cast<std::size_t>(NumElements(sizes)) * DTypeSize(type), std::byte{0xff}) {}
  Buffer(DType type, const Dims& sizes, harness::Random* random, double scale)
      : Buffer(type, sizes) {
    for (std::size_t i = 0; i < bytes.size(); i += DTypeSize(type)) {
      harness::WriteElement(&bytes[i], type, random->Normal() * scale);
    }
  }
  TensorView View() { return TensorView(bytes.data(), dtype, shape); }
  // Of FP32.
  std::vector<float> floats() const {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  DType dtype = DType::kUndefined;
  Dims shape;
  std::vector<std::byte> bytes;
};

// Tokens first .. first + count - 1 of a view whose first dimension counts them.
inline TensorView SomeTokens(TensorView view, std::int64_t first, std::int64_t count) {
  view.data = static_cast<std::byte*>(view.data) +
              first * view.strides[0] * static_cast<std::int64_t>(DTypeSize(view.dtype));
  view.sizes[0] = count;
  return view;
}

template <class Args>
void MustRun(const Args& args, const Context& context, bool* streaming = nullptr) {
  Plan plan;
  Status status = Prepare(args, &plan, context);
  ASSERT_TRUE(status.ok()) << status.message();
  if (streaming != nullptr) *streaming = plan.info().streaming;
  status = plan.Run();
  ASSERT_TRUE(status.ok()) << status.message();
}

}  // namespace anabranch

#endif  // ANABRANCH_TESTS_OPS_BUFFER_H_
