// Bounded copies and fills.
#include "securec.h"

#include <cerrno>
#include <cstring>

extern "C" {

errno_t memmove_s(void* dest, size_t destMax, const void* src, size_t count) {
  if (dest == nullptr || src == nullptr) return EINVAL;
  if (count > destMax) return ERANGE;
  std::memmove(dest, src, count);
  return EOK;
}

errno_t memcpy_s(void* dest, size_t destMax, const void* src, size_t count) {
  return memmove_s(dest, destMax, src, count);
}

errno_t memset_s(void* dest, size_t destMax, int c, size_t count) {
  if (dest == nullptr) return EINVAL;
  if (count > destMax) return ERANGE;
  std::memset(dest, c, count);
  return EOK;
}

errno_t strcpy_s(char* dest, size_t destMax, const char* src) {
  if (dest == nullptr || src == nullptr) return EINVAL;
  return memmove_s(dest, destMax, src, std::strlen(src) + 1);
}

errno_t strcat_s(char* dest, size_t destMax, const char* src) {
  if (dest == nullptr || src == nullptr) return EINVAL;
  const size_t used = strnlen(dest, destMax);
  if (used == destMax) return ERANGE;
  return strcpy_s(dest + used, destMax - used, src);
}

}  // extern "C"
