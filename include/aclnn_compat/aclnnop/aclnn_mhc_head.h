/* aclnnMhcHead: collapse the residual streams at the end of the network. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_HEAD_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_HEAD_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1: checks, and sizes the workspace.
   x [B,S,n,D] or [T,n,D], BFLOAT16, FLOAT16 or FLOAT; fn [n,n*D], base [n], scale [1], FLOAT; y [..,D] like x.
   invRms [..], hMix [..,n], w [..,n], FLOAT: all three or none. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcHeadGetWorkspaceSize(
    const aclTensor *x, const aclTensor *fn, const aclTensor *base, const aclTensor *scale,
    double normEps, double hcEps, aclTensor *y, aclTensor *invRmsOptional,
    aclTensor *hMixOptional, aclTensor *wOptional,
    uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcHead(void *workspace, uint64_t workspaceSize,
                                        aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_HEAD_H_ */
