/* aclnnMhcPostBackward: gradients of aclnnMhcPost. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_POST_BACKWARD_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_POST_BACKWARD_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1. gradOutput, x [B,S,n,D] or [T,n,D]; hRes [..,n,n] FLOAT or null; hOut [..,D]; hPost [..,n]
   FLOAT; gradX like x; gradHRes like hRes (may be null when hRes is); gradHOut like hOut; gradHPost
   like hPost. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPostBackwardGetWorkspaceSize(
    const aclTensor *gradOutput, const aclTensor *x, const aclTensor *hRes, const aclTensor *hOut,
    const aclTensor *hPost, aclTensor *gradX, aclTensor *gradHRes, aclTensor *gradHOut,
    aclTensor *gradHPost, uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPostBackward(void *workspace, uint64_t workspaceSize,
                                                     aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_POST_BACKWARD_H_ */
