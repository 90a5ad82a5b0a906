// A program that is linked with none of the libraries: it opens two plugins, each of which was
// linked with other names of the library, and both work on one device, one stream, one tensor.
// Arguments: the two plugins.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  typedef int (*Step)(void** stream, float* x);
  Step steps[2];
  for (int k = 0; k < 2; ++k) {
    void* plugin = dlopen(argv[1 + k], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 3;
    }
    steps[k] = reinterpret_cast<Step>(dlsym(plugin, "step"));
    if (steps[k] == nullptr) return 4;
  }
  void* stream = nullptr;  // made by the first, used by the second
  float x[2] = {1, 2};
  for (int k = 0; k < 4; ++k) {
    const int code = steps[k % 2](&stream, x);
    if (code != 0) {
      std::fprintf(stderr, "step %d: %d\n", k, code);
      return 5;
    }
  }
  return x[0] == 5 && x[1] == 6 ? 0 : 6;  // each step adds one
}
