/* Initialisation, messages, and everything under acl/. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACL_H_
#define ANABRANCH_ACLNN_COMPAT_ACL_H_

#include "acl/acl_base.h"
#include "acl/acl_mdl.h"
#include "acl/acl_op.h"
#include "acl/acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Starts the library. `configPath`: null, or a file, whose contents have no effect here (100000 if it
   cannot be read). A second call answers 100002 and changes nothing. Other calls work without it. */
ACL_FUNC_VISIBILITY aclError aclInit(const char *configPath);

/* Ends what aclInit began. A second call answers 100037. */
#ifdef __cplusplus
ACL_FUNC_VISIBILITY aclError aclFinalize();
#else
ACL_FUNC_VISIBILITY aclError aclFinalize(void);
#endif

/* Takes one aclInit back and tells how many are left (`refCount` may be null); with the last one it
   ends what aclFinalize ends. 100037 when none was left. */
ACL_FUNC_VISIBILITY aclError aclFinalizeReference(uint64_t *refCount);

/* The messages that failures left in this thread, newest first, one a line, and forgets them. Never
   null; valid until the thread's next call. */
#ifdef __cplusplus
ACL_FUNC_VISIBILITY const char *aclGetRecentErrMsg();
#else
ACL_FUNC_VISIBILITY const char *aclGetRecentErrMsg(void);
#endif

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACL_H_ */
