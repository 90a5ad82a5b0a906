/* What every operator header needs: tensors, executors, status codes. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_BASE_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_BASE_H_

#include "acl/acl_base.h"
#include "acl/acl_rt.h"
#include "aclnn/acl_meta.h"
#include "aclnn/opdev/op_errno.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an executor survive its phase 2, so that it can run again; the program then destroys it. */
ACL_FUNC_VISIBILITY aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *executor);

/* Destroys an executor. Harmless for one that phase 2 has consumed; 161001 for null. */
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_BASE_H_ */
