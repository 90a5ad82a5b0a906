// Turns an error code of torch's C shim into an exception.
#ifndef ANABRANCH_SRC_TORCH_CHECK_H_
#define ANABRANCH_SRC_TORCH_CHECK_H_

#include <torch/csrc/stable/library.h>

// PyTorch 2.10 has no macro of the stable ABI's own, which carries the error's text.
#ifdef STABLE_TORCH_ERROR_CODE_CHECK
#define ANABRANCH_TORCH_CHECK(call) STABLE_TORCH_ERROR_CODE_CHECK(call)
#else
#define ANABRANCH_TORCH_CHECK(call) TORCH_ERROR_CODE_CHECK(call)
#endif

#endif  // ANABRANCH_SRC_TORCH_CHECK_H_
