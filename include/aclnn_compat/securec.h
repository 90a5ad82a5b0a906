/* Bounded copies and fills, as programs of this kind call them. 0 on success. */
#ifndef ANABRANCH_ACLNN_COMPAT_SECUREC_H_
#define ANABRANCH_ACLNN_COMPAT_SECUREC_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int errno_t;
#ifndef EOK
#define EOK 0
#endif

/* Copies `count` bytes. Null pointers give 22 (EINVAL), count > destMax gives 34 (ERANGE); the
   destination is then untouched. Overlapping memory is copied as memmove does. */
__attribute__((visibility("default"))) errno_t memcpy_s(void *dest, size_t destMax, const void *src,
                                                        size_t count);
__attribute__((visibility("default"))) errno_t memmove_s(void *dest, size_t destMax,
                                                         const void *src, size_t count);

/* Fills `count` bytes with `c`; errors as for memcpy_s. */
__attribute__((visibility("default"))) errno_t memset_s(void *dest, size_t destMax, int c,
                                                        size_t count);

/* Copies and appends strings; the result always ends in a null character. destMax counts it. */
__attribute__((visibility("default"))) errno_t strcpy_s(char *dest, size_t destMax, const char *src);
__attribute__((visibility("default"))) errno_t strcat_s(char *dest, size_t destMax, const char *src);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_SECUREC_H_ */
