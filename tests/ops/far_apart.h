// The tensors of a call of two tokens, laid out with more than 2^31 elements between the tokens.
#ifndef ANABRANCH_TESTS_OPS_FAR_APART_H_
#define ANABRANCH_TESTS_OPS_FAR_APART_H_

#include <sys/mman.h>

#include <memory>
#include <vector>

#include "src/tools/harness/tensors.h"

namespace anabranch {

// Memory that is reserved, and there where it is touched.
class Sparse {
 public:
  explicit Sparse(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Sparse() {
    if (ok()) munmap(data_, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  bool ok() const { return data_ != MAP_FAILED; }
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// Inputs hold the values that they have in `dense`; outputs hold nothing.
class FarApart {
 public:
  explicit FarApart(const harness::CaseTensors& dense) {
    constexpr std::int64_t kApart = (std::int64_t{1} << 31) + 24;
    for (std::size_t k = 0; k < dense.specs.size(); ++k) {
      TensorView view = dense.buffers[k].view;
      for (int i = 0; i + 1 < view.rank(); ++i) {
        if (view.sizes[i] != 2) continue;
        view.strides[i] = kApart;
        memory_.push_back(std::make_unique<Sparse>((kApart + (1 << 20)) * DTypeSize(view.dtype)));
        ok_ = ok_ && memory_.back()->ok();
        view.data = memory_.back()->data();
        break;
      }
      views_.push_back(view);
      if (ok_ && !dense.specs[k].output) {
        harness::WriteAll(view, harness::ReadAll(dense.buffers[k].view));
      }
    }
  }
  bool ok() const { return ok_; }
  const std::vector<TensorView>& views() const { return views_; }

 private:
  std::vector<std::unique_ptr<Sparse>> memory_;
  std::vector<TensorView> views_;
  bool ok_ = true;
};

}  // namespace anabranch

#endif  // ANABRANCH_TESTS_OPS_FAR_APART_H_
