/* Types, enumerations and status codes of the aclnn-compatible C API. C99 and C++11. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACL_BASE_H_
#define ANABRANCH_ACLNN_COMPAT_ACL_BASE_H_

#include <stddef.h>
#include <stdint.h>
#ifndef __cplusplus
#include <stdbool.h>
#endif

/* Every function of this API is visible outside the library; the rest of it is not. */
#define ACL_FUNC_VISIBILITY __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Status of a runtime call: 0 or one of the ACL_ERROR_* below. */
typedef int aclError;
/* An IEEE binary16 as its bit pattern. */
typedef uint16_t aclFloat16;
/* Handles of the runtime. */
typedef void *aclrtStream;
typedef void *aclrtContext;
typedef void *aclrtEvent;

/* Runtime status codes. */
static const int ACL_SUCCESS = 0;
static const int ACL_ERROR_NONE = 0;
static const int ACL_ERROR_INVALID_PARAM = 100000;     /* an argument is null or out of range */
static const int ACL_ERROR_UNINITIALIZE = 100001;      /* used before aclInit where that is needed */
static const int ACL_ERROR_REPEAT_INITIALIZE = 100002; /* aclInit was called before; harmless */
static const int ACL_ERROR_REPEAT_FINALIZE = 100037;   /* aclFinalize was called before */
static const int ACL_ERROR_BAD_ALLOC = 200000;         /* host memory is exhausted */
static const int ACL_ERROR_API_NOT_SUPPORT = 200001;   /* the call is not supported */
static const int ACL_ERROR_INVALID_DEVICE = 200002;    /* no such device */
static const int ACL_ERROR_INTERNAL_ERROR = 500000;    /* a fault of the library */

/* Element types of tensors and scalars. */
typedef enum {
    ACL_DT_UNDEFINED = -1,
    ACL_FLOAT = 0,
    ACL_FLOAT16 = 1,
    ACL_INT8 = 2,
    ACL_INT32 = 3,
    ACL_UINT8 = 4,
    ACL_INT16 = 6,
    ACL_UINT16 = 7,
    ACL_UINT32 = 8,
    ACL_INT64 = 9,
    ACL_UINT64 = 10,
    ACL_DOUBLE = 11,
    ACL_BOOL = 12,
    ACL_STRING = 13,
    ACL_COMPLEX64 = 16,
    ACL_COMPLEX128 = 17,
    ACL_BF16 = 27,
    ACL_INT4 = 29,
    ACL_UINT1 = 30,
    ACL_COMPLEX32 = 33,
    ACL_HIFLOAT8 = 34,
    ACL_FLOAT8_E5M2 = 35,
    ACL_FLOAT8_E4M3FN = 36,
    ACL_FLOAT8_E8M0 = 37,
    ACL_FLOAT6_E3M2 = 38,
    ACL_FLOAT6_E2M3 = 39,
    ACL_FLOAT4_E2M1 = 40,
    ACL_FLOAT4_E1M2 = 41
} aclDataType;

/* Memory formats. Operators here read every format as plain strided data and refuse the private
   ones (NC1HWC0, FRACTAL_Z, NC1HWC0_C04, FRACTAL_NZ, NDC1HWC0, FRACTAL_Z_3D). */
typedef enum {
    ACL_FORMAT_UNDEFINED = -1,
    ACL_FORMAT_NCHW = 0,
    ACL_FORMAT_NHWC = 1,
    ACL_FORMAT_ND = 2,
    ACL_FORMAT_NC1HWC0 = 3,
    ACL_FORMAT_FRACTAL_Z = 4,
    ACL_FORMAT_NC1HWC0_C04 = 12,
    ACL_FORMAT_HWCN = 16,
    ACL_FORMAT_NDHWC = 27,
    ACL_FORMAT_FRACTAL_NZ = 29,
    ACL_FORMAT_NCDHW = 30,
    ACL_FORMAT_NDC1HWC0 = 32,
    ACL_FRACTAL_Z_3D = 33,
    ACL_FORMAT_NC = 35,
    ACL_FORMAT_NCL = 47
} aclFormat;

/* Severity of a line of the application log. */
typedef enum { ACL_DEBUG = 0, ACL_INFO = 1, ACL_WARNING = 2, ACL_ERROR = 3 } aclLogLevel;

/* Bytes of an element; 0 for types without whole bytes (ACL_INT4, ACL_STRING ...) and unknown ones. */
ACL_FUNC_VISIBILITY size_t aclDataTypeSize(aclDataType dataType);

/* A line of the application log, on stderr: "[LEVEL] file:line func: text". Lines below the level that
   the environment variable ANABRANCH_LOG_LEVEL gives (0..3; errors only without it) are dropped. */
ACL_FUNC_VISIBILITY void aclAppLog(aclLogLevel logLevel, const char *func, const char *file,
                                   uint32_t line, const char *fmt, ...);
#define ACL_APP_LOG(level, ...) aclAppLog((level), __func__, __FILE__, (uint32_t)__LINE__, __VA_ARGS__)

/* Bit pattern -> float, exact. */
ACL_FUNC_VISIBILITY float aclFloat16ToFloat(aclFloat16 value);

/* float -> bit pattern, nearest even; saturates: above the range and NaN give 65504, -inf and below
   the range give -65504. */
ACL_FUNC_VISIBILITY aclFloat16 aclFloatToFloat16(float value);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACL_BASE_H_ */
