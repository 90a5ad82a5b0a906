// A library that uses ours: adds one to x[0..1] on the stream, which it makes if there is none.
#include "acl/acl.h"
#include "aclnnop/aclnn_mhc_post.h"

extern "C" int step(void** stream, float* x) {
  if (*stream == nullptr) {
    if (aclInit(nullptr) != 0 || aclrtSetDevice(0) != 0) return 1;
    if (aclrtCreateStream(stream) != 0) return 2;
  } else if (aclInit(nullptr) != ACL_ERROR_REPEAT_INITIALIZE) {
    return 3;  // the other plugin did it: one state for both
  }
  float one[2] = {1, 1};
  float post = 1;
  const int64_t streams[] = {1, 1, 2}, hidden[] = {1, 2}, lanes[] = {1, 1};
  const auto make = [](const int64_t* sizes, uint64_t rank, float* data) {
    return aclCreateTensor(sizes, rank, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, sizes, rank, data);
  };
  aclTensor* tensors[] = {make(streams, 3, x), make(hidden, 2, one), make(lanes, 2, &post)};
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  int code = aclnnMhcPostGetWorkspaceSize(tensors[0], nullptr, tensors[1], tensors[2], tensors[0],
                                          &size, &executor);
  if (code == 0) code = aclnnMhcPost(nullptr, size, executor, *stream);
  if (code == 0) code = aclrtSynchronizeStream(*stream);
  for (aclTensor* tensor : tensors) aclDestroyTensor(tensor);
  return code;
}
