/* Status codes of the runtime layer. */
#ifndef ANABRANCH_ACLNN_COMPAT_RT_ERROR_CODES_H_
#define ANABRANCH_ACLNN_COMPAT_RT_ERROR_CODES_H_

#include <stdint.h>

static const int32_t ACL_ERROR_RT_PARAM_INVALID = 107000;            /* an argument is out of range */
static const int32_t ACL_ERROR_RT_INVALID_DEVICEID = 107001;         /* no device of that number */
static const int32_t ACL_ERROR_RT_CONTEXT_NULL = 107002;             /* this thread has no context */
static const int32_t ACL_ERROR_RT_STREAM_CONTEXT = 107003;           /* the stream's context is gone */
static const int32_t ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID = 107006;  /* an event was not recorded */
static const int32_t ACL_ERROR_RT_INVALID_HANDLE = 107017;           /* unknown or destroyed handle */
static const int32_t ACL_ERROR_RT_WAIT_TIMEOUT = 107019;             /* a wait ran out of time */
static const int32_t ACL_ERROR_RT_SYSPARAMOPT_NOT_SET = 107021;      /* that parameter was never set */
static const int32_t ACL_ERROR_RT_FEATURE_NOT_SUPPORT = 207000;      /* not supported here */
static const int32_t ACL_ERROR_RT_MEMORY_ALLOCATION = 207001;        /* no memory of that size */
static const int32_t ACL_ERROR_RT_STREAM_SYNC_TIMEOUT = 507046;      /* a stream did not finish in time */
static const int32_t ACL_ERROR_RT_EVENT_SYNC_TIMEOUT = 507047;       /* an event did not finish in time */

#endif /* ANABRANCH_ACLNN_COMPAT_RT_ERROR_CODES_H_ */
