// Opens several library names and checks that they share one state with the linked one.
#include <dlfcn.h>

#include <cstdio>

#include "acl/acl.h"
#include "aclnnop/aclnn_mhc_post.h"

int main() {
  if (aclInit(nullptr) != 0 || aclrtSetDevice(0) != 0) return 1;
  const char* names[] = {"libascendcl.so", "libnnopbase.so", "libopapi.so", "libopapi_nn.so"};
  for (const char* name : names) {
    void* library = dlopen(name, RTLD_NOW);
    if (library == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 2;
    }
    // The same function, and one aclInit for all of them.
    if (dlsym(library, "aclInit") != reinterpret_cast<void*>(&aclInit)) return 3;
  }
  if (aclInit(nullptr) != ACL_ERROR_REPEAT_INITIALIZE) return 4;
  void* memory = nullptr;
  if (aclrtMalloc(&memory, 100, ACL_MEM_MALLOC_HUGE_FIRST) != 0 || aclrtFree(memory) != 0) return 5;
  if (aclrtResetDevice(0) != 0 || aclFinalize() != 0) return 6;
  return 0;
}
