// Published programs tear down in every order: each of six steps first, last and in between, also
// twice. All 720 orders run in one process; none crashes, hangs or loses what was computed.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_mhc_post.h"

namespace {

struct Program {
  aclrtContext context = nullptr;
  aclrtStream stream = nullptr;
  aclrtEvent event = nullptr;
  aclTensor* tensors[4] = {};
  void* memory = nullptr;
};

bool Begin(Program* p, float* y) {
  aclInit(nullptr);
  if (aclrtSetDevice(0) != 0 || aclrtCreateContext(&p->context, 0) != 0) return false;
  if (aclrtCreateStream(&p->stream) != 0 || aclrtCreateEvent(&p->event) != 0) return false;
  if (aclrtMalloc(&p->memory, 4 * sizeof(float), ACL_MEM_MALLOC_HUGE_FIRST) != 0) return false;
  auto* values = static_cast<float*>(p->memory);
  const float start[] = {1, 2, 3, 1};
  if (aclrtMemcpy(values, sizeof(start), start, sizeof(start), ACL_MEMCPY_HOST_TO_DEVICE) != 0)
    return false;
  const int64_t x[] = {1, 1, 2}, h[] = {1, 2}, post[] = {1, 1};
  const auto make = [](const int64_t* sizes, uint64_t rank, float* data) {
    return aclCreateTensor(sizes, rank, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, sizes, rank, data);
  };
  p->tensors[0] = make(x, 3, values);
  p->tensors[1] = make(h, 2, values + 1);
  p->tensors[2] = make(post, 2, values + 3);
  p->tensors[3] = make(x, 3, y);
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  if (aclnnMhcPostGetWorkspaceSize(p->tensors[0], nullptr, p->tensors[1], p->tensors[2],
                                   p->tensors[3], &size, &executor) != 0)
    return false;
  if (aclnnMhcPost(nullptr, size, executor, p->stream) != 0) return false;
  if (aclrtRecordEvent(p->event, p->stream) != 0) return false;
  return aclrtSynchronizeStream(p->stream) == 0;
}

void Step(Program* p, int step) {
  switch (step) {
    case 0:
      for (aclTensor* tensor : p->tensors) aclDestroyTensor(tensor);
      break;
    case 1:
      aclrtDestroyEvent(p->event);
      break;
    case 2:
      aclrtDestroyStream(p->stream);
      break;
    case 3:
      aclrtDestroyContext(p->context);
      break;
    case 4:
      aclrtFree(p->memory);
      break;
    default:
      aclrtResetDevice(0);
      aclFinalize();
  }
}

}  // namespace

int main() {
  std::vector<int> order = {0, 1, 2, 3, 4, 5};
  int orders = 0;
  do {
    Program program;
    float y[2] = {};
    if (!Begin(&program, y)) {
      std::fprintf(stderr, "order %d: %s\n", orders, aclGetRecentErrMsg());
      return 1;
    }
    for (int step : order) Step(&program, step);
    for (int step : order) Step(&program, step);  // all of it is gone: errors, no crash
    if (y[0] != 3 || y[1] != 5) return 2;
    aclGetRecentErrMsg();
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  return orders == 720 ? 0 : 3;
}
