// What the aclnn examples share: error checks, real input, bfloat16, tensors with their memory.
#ifndef ANABRANCH_EXAMPLES_ACLNN_SAMPLE_UTIL_H_
#define ANABRANCH_EXAMPLES_ACLNN_SAMPLE_UTIL_H_

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

#define CHECK(call)                                                                \
  do {                                                                             \
    const int check_code = (call);                                                 \
    if (check_code != 0) {                                                         \
      std::fprintf(stderr, "%s: %d\n%s", #call, check_code, aclGetRecentErrMsg()); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (0)

inline std::string ReadText(const char* path, std::size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.empty()) {
    std::fprintf(stderr, "cannot read %s, expected a text file\n", path);
    std::exit(2);
  }
  if (text.size() > most) text.resize(most);
  return text;
}

// A fixed embedding: a key hashed to a value of mean 0 and variance 1.
inline float Embed(uint64_t key) {
  uint64_t z = key * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  const double uniform = static_cast<double>(z >> 11) / 9007199254740992.0;
  return static_cast<float>((uniform - 0.5) * std::sqrt(12.0));
}

inline uint16_t ToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float FromBf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline std::vector<uint16_t> ToBf16(const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (std::size_t k = 0; k < values.size(); ++k) halves.push_back(ToBf16(values[k]));
  return halves;
}

// A dense tensor in device memory; `host` gives its first contents.
struct DeviceTensor {
  void* data = nullptr;
  aclTensor* tensor = nullptr;
  std::size_t bytes = 0;

  template <class T>
  DeviceTensor(const std::vector<T>& host, const std::vector<int64_t>& shape, aclDataType type)
      : bytes(host.size() * sizeof(T)) {
    CHECK(aclrtMalloc(&data, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(data, bytes, host.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    tensor = aclCreateTensor(shape.data(), shape.size(), type, nullptr, 0, ACL_FORMAT_ND,
                             shape.data(), shape.size(), data);
    if (tensor == nullptr) {
      std::fprintf(stderr, "aclCreateTensor: %s", aclGetRecentErrMsg());
      std::exit(1);
    }
  }
  ~DeviceTensor() {
    aclDestroyTensor(tensor);
    aclrtFree(data);
  }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  template <class T>
  std::vector<T> ToHost() const {
    std::vector<T> host(bytes / sizeof(T));
    CHECK(aclrtMemcpy(host.data(), bytes, data, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    return host;
  }
};

#endif  // ANABRANCH_EXAMPLES_ACLNN_SAMPLE_UTIL_H_
