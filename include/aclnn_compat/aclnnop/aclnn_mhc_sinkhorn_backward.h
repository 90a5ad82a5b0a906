/* aclnnMhcSinkhornBackward: the exact gradient of aclnnMhcSinkhorn from its caches. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_SINKHORN_BACKWARD_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_SINKHORN_BACKWARD_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1. gradOutput [B,S,n,n] or [T,n,n] FLOAT; normOut and sumOut as aclnnMhcSinkhorn wrote them, whose
   size gives the number of iterations, 1..100; out like gradOutput. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcSinkhornBackwardGetWorkspaceSize(
    const aclTensor *gradOutput, const aclTensor *normOut, const aclTensor *sumOut, aclTensor *out,
    uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcSinkhornBackward(void *workspace, uint64_t workspaceSize,
                                                         aclOpExecutor *executor,
                                                         aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_SINKHORN_BACKWARD_H_ */
