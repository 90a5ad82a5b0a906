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

/* Kind of memory asked about; all are this machine's memory. */
typedef enum {
    ACL_DDR_MEM = 0,
    ACL_HBM_MEM = 1,
    ACL_DDR_MEM_HUGE = 2,
    ACL_DDR_MEM_NORMAL = 3,
    ACL_HBM_MEM_HUGE = 4,
    ACL_HBM_MEM_NORMAL = 5,
    ACL_DDR_MEM_P2P_HUGE = 6,
    ACL_DDR_MEM_P2P_NORMAL = 7,
    ACL_HBM_MEM_P2P_HUGE = 8,
    ACL_HBM_MEM_P2P_NORMAL = 9
} aclrtMemAttr;

/* State of an event or of a stream. */
typedef enum { ACL_EVENT_STATUS_COMPLETE = 0, ACL_EVENT_STATUS_NOT_READY = 1 } aclrtEventStatus;
typedef enum {
    ACL_EVENT_RECORDED_STATUS_NOT_READY = 0,
    ACL_EVENT_RECORDED_STATUS_COMPLETE = 1
} aclrtEventRecordedStatus;
typedef enum { ACL_STREAM_STATUS_COMPLETE = 0, ACL_STREAM_STATUS_NOT_READY = 1 } aclrtStreamStatus;

/* Whether a callback holds back its stream. */
typedef enum { ACL_CALLBACK_NO_BLOCK = 0, ACL_CALLBACK_BLOCK = 1 } aclrtCallbackBlockType;

/* Whose last error is asked for. */
typedef enum { ACL_RT_THREAD_LEVEL = 0 } aclrtLastErrLevel;

/* Functions of the program that streams call. */
typedef void (*aclrtCallback)(void *userData);
typedef void (*aclrtHostFunc)(void *args);

/* ---- devices and contexts ---- */

/* Binds this thread to the default context of a device (0 is the only one) and counts the call;
   107001 for another number. */
ACL_FUNC_VISIBILITY aclError aclrtSetDevice(int32_t deviceId);

/* Takes one aclrtSetDevice back; after the last one the default context, its streams and what is
   queued on them are gone (queued work is finished first). 107000 without an aclrtSetDevice. */
ACL_FUNC_VISIBILITY aclError aclrtResetDevice(int32_t deviceId);

/* Takes every aclrtSetDevice back at once; fine also when there is none. */
ACL_FUNC_VISIBILITY aclError aclrtResetDeviceForce(int32_t deviceId);

/* The device of this thread's context; 107002 if it has none. */
ACL_FUNC_VISIBILITY aclError aclrtGetDevice(int32_t *deviceId);

/* Waits for all streams of the device; the first failure of their work, if any. 107002 in a thread
   without a context. */
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeDevice(void);

/* Makes a context and binds this thread to it. */
ACL_FUNC_VISIBILITY aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId);

/* Destroys a context made by aclrtCreateContext, its streams with it. */
ACL_FUNC_VISIBILITY aclError aclrtDestroyContext(aclrtContext context);

/* Binds this thread to a context. */
ACL_FUNC_VISIBILITY aclError aclrtSetCurrentContext(aclrtContext context);

/* This thread's context; 107002 if it has none. */
ACL_FUNC_VISIBILITY aclError aclrtGetCurrentContext(aclrtContext *context);

/* ---- streams ---- */

/* Makes a stream, a first-in first-out queue with a worker of its own, in this thread's context. */
ACL_FUNC_VISIBILITY aclError aclrtCreateStream(aclrtStream *stream);

/* Finishes what is queued and destroys the stream. */
ACL_FUNC_VISIBILITY aclError aclrtDestroyStream(aclrtStream stream);

/* Waits until everything queued so far is done. A null stream is the default stream of this
   thread's context. Returns the first failure of the queued work since the last call, if any. */
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeStream(aclrtStream stream);

/* The same with a limit: -1 waits for ever; 507046 after `timeout` milliseconds. */
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout);

/* As aclrtCreateStream. The priority has no effect; `flag`: 0 or ACL_STREAM_* flags, also without effect. */
ACL_FUNC_VISIBILITY aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority,
                                                         uint32_t flag);

/* Destroys the stream without doing what has not begun. */
ACL_FUNC_VISIBILITY aclError aclrtDestroyStreamForce(aclrtStream stream);

/* Whether everything that was queued is done. */
ACL_FUNC_VISIBILITY aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status);

/* Queues a call of fn(args), made by the stream's own thread. The function must not wait for its own
   stream (107000). */
ACL_FUNC_VISIBILITY aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void *args);

/* Callbacks in a thread of the program: the thread (its pthread_self()) subscribes to a stream, work of
   the stream hands callbacks over, and aclrtProcessReport, called in that thread, runs the next one: it
   waits `timeout` milliseconds for one (-1: for ever; 107019 when time is up). A blocking callback holds
   its stream back until it has run. 107000: launched without, or processed by, a thread that is
   subscribed; subscribed twice. Unsubscribing drops callbacks that have not begun. */
ACL_FUNC_VISIBILITY aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream);
ACL_FUNC_VISIBILITY aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream);
ACL_FUNC_VISIBILITY aclError aclrtLaunchCallback(aclrtCallback fn, void *userData,
                                                 aclrtCallbackBlockType blockType, aclrtStream stream);
ACL_FUNC_VISIBILITY aclError aclrtProcessReport(int32_t timeout);

/* ---- events: marks in streams ---- */

/* Makes an event that keeps the times of its records. */
ACL_FUNC_VISIBILITY aclError aclrtCreateEvent(aclrtEvent *event);

/* Makes an event; it keeps times if `flag` has ACL_EVENT_TIME_LINE. 107000 for unknown flags. */
ACL_FUNC_VISIBILITY aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag);
ACL_FUNC_VISIBILITY aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag);

/* Destroys an event. Streams that wait for a record that was not queued go on with an error (107017). */
ACL_FUNC_VISIBILITY aclError aclrtDestroyEvent(aclrtEvent event);

/* Puts a mark behind what is queued on the stream. */
ACL_FUNC_VISIBILITY aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);

/* Takes the records made so far back: the event is as new once the stream gets there. Waits that were
   queued before are not affected. */
ACL_FUNC_VISIBILITY aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);

/* The stream waits for the latest record made before this call; if there is none, for the next one. */
ACL_FUNC_VISIBILITY aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);

/* This thread waits for the latest record; returns at once if there is none. With a limit: -1 waits for
   ever; 507047 after `timeout` milliseconds. */
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeEvent(aclrtEvent event);
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout);

/* Whether the latest record has been reached; not ready if there is none. */
ACL_FUNC_VISIBILITY aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status);
ACL_FUNC_VISIBILITY aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus *status);

/* Milliseconds from one event's record to another's. 107006 if one has not been reached or keeps no
   times. */
ACL_FUNC_VISIBILITY aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent,
                                                   aclrtEvent endEvent);

/* ---- memory ---- */

/* 64-byte aligned memory. A null pointer or size 0 is an error (100000); 207001 without memory. */
ACL_FUNC_VISIBILITY aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy);

/* Frees memory of aclrtMalloc. Null (100000) and other addresses (107000) are errors. */
ACL_FUNC_VISIBILITY aclError aclrtFree(void *devPtr);

/* Copies `count` bytes at once, without waiting for any stream; count > destMax is an error. */
ACL_FUNC_VISIBILITY aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count,
                                         aclrtMemcpyKind kind);

/* Host memory, 64-byte aligned, freed by its own call; errors as above. */
ACL_FUNC_VISIBILITY aclError aclrtMallocHost(void **hostPtr, size_t size);
ACL_FUNC_VISIBILITY aclError aclrtFreeHost(void *hostPtr);

/* Fills `count` bytes with the low byte of `value` at once; count > maxCount is an error (107000). */
ACL_FUNC_VISIBILITY aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count);

/* The same as work of a stream; arguments are checked at once. */
ACL_FUNC_VISIBILITY aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count,
                                              aclrtMemcpyKind kind, aclrtStream stream);
ACL_FUNC_VISIBILITY aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value,
                                              size_t count, aclrtStream stream);

/* Bytes of this machine's memory, available and in all. */
ACL_FUNC_VISIBILITY aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total);

/* ---- parameters, names, errors ---- */

/* Sets and reads a parameter; reading one that was never set gives 107021. */
ACL_FUNC_VISIBILITY aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value);
ACL_FUNC_VISIBILITY aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t *value);

/* The same for this thread's context; 107002 if it has none. */
ACL_FUNC_VISIBILITY aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value);
ACL_FUNC_VISIBILITY aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t *value);

/* The code of this thread's latest failed call, 0 if there is none; the first call forgets it. */
ACL_FUNC_VISIBILITY aclError aclrtGetLastError(aclrtLastErrLevel level);
ACL_FUNC_VISIBILITY aclError aclrtPeekAtLastError(aclrtLastErrLevel level);

/* Where this program runs: ACL_HOST. */
ACL_FUNC_VISIBILITY aclError aclrtGetRunMode(aclrtRunMode *runMode);

/* Number of devices: 1. */
ACL_FUNC_VISIBILITY aclError aclrtGetDeviceCount(uint32_t *count);

/* Name of the machine that ANABRANCH_SOC picks; never null. */
ACL_FUNC_VISIBILITY const char *aclrtGetSocName(void);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACL_RT_H_ */
