/* The runtime: devices, contexts, streams, memory. The "device" is this machine's processor; device
   memory is ordinary memory. Every failure leaves a message for aclGetRecentErrMsg. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACL_RT_H_
#define ANABRANCH_ACLNN_COMPAT_ACL_RT_H_

#include "acl/acl_base.h"
#include "acl/error_codes/rt_error_codes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Event flags. */
#define ACL_EVENT_SYNC 1u
#define ACL_EVENT_CAPTURE_STREAM_PROGRESS 2u
#define ACL_EVENT_TIME_LINE 8u

/* Stream flags; accepted, without effect here. */
#define ACL_STREAM_FAST_LAUNCH 1u
#define ACL_STREAM_FAST_SYNC 2u

/* Direction of a copy. Host and device share their memory here, so that all kinds copy alike. */
typedef enum {
    ACL_MEMCPY_HOST_TO_HOST = 0,
    ACL_MEMCPY_HOST_TO_DEVICE = 1,
    ACL_MEMCPY_DEVICE_TO_HOST = 2,
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
    ACL_MEMCPY_DEFAULT = 4,
    ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE = 5,
    ACL_MEMCPY_INNER_DEVICE_TO_DEVICE = 6,
    ACL_MEMCPY_INTER_DEVICE_TO_DEVICE = 7
} aclrtMemcpyKind;

/* Page policy of an allocation; accepted, without effect here. */
typedef enum {
    ACL_MEM_MALLOC_HUGE_FIRST = 0,
    ACL_MEM_MALLOC_HUGE_ONLY = 1,
    ACL_MEM_MALLOC_NORMAL_ONLY = 2,
    ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3,
    ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4,
    ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5,
    ACL_MEM_MALLOC_HUGE1G_ONLY = 6,
    ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7,
    ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x0100,
    ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000
} aclrtMemMallocPolicy;

/* Process-wide parameters. All operators here are deterministic whatever is set. */
typedef enum {
    ACL_OPT_DETERMINISTIC = 0,
    ACL_OPT_ENABLE_DEBUG_KERNEL = 1,
    ACL_OPT_STRONG_CONSISTENCY = 2
} aclSysParamOpt;

/* Where a program runs; programs here run on the host (ACL_HOST). */
typedef enum { ACL_DEVICE = 0, ACL_HOST = 1 } aclrtRunMode;

/* Kind of memory asked about; both are this machine's memory. */
typedef enum { ACL_DDR_MEM = 0, ACL_HBM_MEM = 1 } aclrtMemAttr;

/* State of an event or of a stream. */
typedef enum { ACL_EVENT_STATUS_COMPLETE = 0, ACL_EVENT_STATUS_NOT_READY = 1 } aclrtEventStatus;
typedef enum {
    ACL_EVENT_RECORDED_STATUS_NOT_READY = 0,
    ACL_EVENT_RECORDED_STATUS_COMPLETE = 1
} aclrtEventRecordedStatus;
typedef enum { ACL_STREAM_STATUS_COMPLETE = 0, ACL_STREAM_STATUS_NOT_READY = 1 } aclrtStreamStatus;

/* Whether a callback holds back its stream. */
typedef enum { ACL_CALLBACK_NO_BLOCK = 0, ACL_CALLBACK_BLOCK = 1 } aclrtCallbackBlockType;

/* Binds this thread to the default context of a device (0 is the only one) and counts the call;
   107001 for another number. */
ACL_FUNC_VISIBILITY aclError aclrtSetDevice(int32_t deviceId);

/* Takes one aclrtSetDevice back; after the last one the default context, its streams and what is
   queued on them are gone (queued work is finished first). 107000 without an aclrtSetDevice. */
ACL_FUNC_VISIBILITY aclError aclrtResetDevice(int32_t deviceId);

/* Makes a context and binds this thread to it. */
ACL_FUNC_VISIBILITY aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId);

/* Destroys a context made by aclrtCreateContext, its streams with it. */
ACL_FUNC_VISIBILITY aclError aclrtDestroyContext(aclrtContext context);

/* Binds this thread to a context. */
ACL_FUNC_VISIBILITY aclError aclrtSetCurrentContext(aclrtContext context);

/* This thread's context; 107002 if it has none. */
ACL_FUNC_VISIBILITY aclError aclrtGetCurrentContext(aclrtContext *context);

/* Makes a stream, a first-in first-out queue with a worker of its own, in this thread's context. */
ACL_FUNC_VISIBILITY aclError aclrtCreateStream(aclrtStream *stream);

/* Finishes what is queued and destroys the stream. */
ACL_FUNC_VISIBILITY aclError aclrtDestroyStream(aclrtStream stream);

/* Waits until everything queued so far is done. A null stream is the default stream of this
   thread's context. Returns the first failure of the queued work since the last call, if any. */
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeStream(aclrtStream stream);

/* 64-byte aligned memory. A null pointer or size 0 is an error (100000); 207001 without memory. */
ACL_FUNC_VISIBILITY aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy);

/* Frees memory of aclrtMalloc. Null (100000) and other addresses (107000) are errors. */
ACL_FUNC_VISIBILITY aclError aclrtFree(void *devPtr);

/* Copies `count` bytes at once, without waiting for any stream; count > destMax is an error. */
ACL_FUNC_VISIBILITY aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count,
                                         aclrtMemcpyKind kind);

/* Sets and reads a parameter; reading one that was never set gives 107021. */
ACL_FUNC_VISIBILITY aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value);
ACL_FUNC_VISIBILITY aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t *value);

/* Number of devices: 1. */
ACL_FUNC_VISIBILITY aclError aclrtGetDeviceCount(uint32_t *count);

/* Name of the machine that ANABRANCH_SOC picks; never null. */
ACL_FUNC_VISIBILITY const char *aclrtGetSocName(void);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACL_RT_H_ */
