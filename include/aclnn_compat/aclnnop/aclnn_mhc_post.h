/* aclnnMhcPost: y[i] = hPost[i] * hOut + sum_j hRes[j][i] * x[j] (the first index of hRes is summed). */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_POST_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_POST_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1: checks, and sizes the workspace.
   x [B,S,n,D] or [T,n,D], BFLOAT16, FLOAT16 or FLOAT; hRes [..,n,n] FLOAT, null: streams are not mixed;
   hOut [..,D] like x; hPost [..,n] FLOAT; out like x. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPostGetWorkspaceSize(
    const aclTensor *x, const aclTensor *hRes, const aclTensor *hOut, const aclTensor *hPost,
    aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPost(void *workspace, uint64_t workspaceSize,
                                             aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_POST_H_ */
