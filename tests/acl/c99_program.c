/* A whole program in the published style, in C99: init, device, context, stream, tensors, two
   phases, synchronise, copy back, destroy. y[i] = h_out + x[i] for one token of two streams. */
#include <stdio.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_mhc_post.h"

#define CHECK(call)                                                       \
  do {                                                                    \
    const int code = (call);                                              \
    if (code != 0) {                                                      \
      fprintf(stderr, "%s: %d, %s\n", #call, code, aclGetRecentErrMsg()); \
      return 1;                                                           \
    }                                                                     \
  } while (0)

static aclTensor* upload(const int64_t* sizes, uint64_t rank, const float* values, void** memory) {
  size_t bytes = sizeof(float);
  uint64_t i;
  for (i = 0; i < rank; ++i) bytes *= (size_t)sizes[i];
  if (aclrtMalloc(memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) return NULL;
  if (aclrtMemcpy(*memory, bytes, values, bytes, ACL_MEMCPY_HOST_TO_DEVICE) != 0) return NULL;
  return aclCreateTensor(sizes, rank, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, sizes, rank, *memory);
}

int main(void) {
  const int64_t streams[] = {1, 2, 3}, hidden[] = {1, 3}, lanes[] = {1, 2};
  const float x[6] = {1, 2, 3, 4, 5, 6}, h_out[3] = {10, 20, 30}, ones[2] = {1, 1};
  const float want[6] = {11, 22, 33, 14, 25, 36};
  float y[6] = {0};
  void *memory[4], *workspace = NULL;
  aclTensor* tensors[4];
  aclrtContext context;
  aclrtStream stream;
  aclOpExecutor* executor;
  uint64_t size = 0;
  int k;
  CHECK(aclInit(NULL));
  CHECK(aclrtSetDevice(0));
  CHECK(aclrtCreateContext(&context, 0));
  CHECK(aclrtSetCurrentContext(context));
  CHECK(aclrtCreateStream(&stream));
  tensors[0] = upload(streams, 3, x, &memory[0]);
  tensors[1] = upload(hidden, 2, h_out, &memory[1]);
  tensors[2] = upload(lanes, 2, ones, &memory[2]);
  tensors[3] = upload(streams, 3, y, &memory[3]);
  for (k = 0; k < 4; ++k) CHECK(tensors[k] == NULL);
  CHECK(aclnnMhcPostGetWorkspaceSize(tensors[0], NULL, tensors[1], tensors[2], tensors[3], &size,
                                     &executor));
  if (size > 0) CHECK(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclnnMhcPost(workspace, size, executor, stream));
  CHECK(aclrtSynchronizeStream(stream));
  CHECK(aclrtMemcpy(y, sizeof(y), memory[3], sizeof(y), ACL_MEMCPY_DEVICE_TO_HOST));
  for (k = 0; k < 6; ++k) CHECK(y[k] != want[k]);
  for (k = 0; k < 4; ++k) {
    CHECK(aclDestroyTensor(tensors[k]));
    CHECK(aclrtFree(memory[k]));
  }
  if (size > 0) CHECK(aclrtFree(workspace));
  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtDestroyContext(context));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
  return 0;
}
