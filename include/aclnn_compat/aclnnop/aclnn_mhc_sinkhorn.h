/* aclnnMhcSinkhorn: logits [..,n,n] of every token become a nearly doubly stochastic matrix: softmax of
   the rows, plus eps, columns divided by their sums plus eps, then rows and columns numIters-1 times. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_SINKHORN_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_SINKHORN_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1. x [B,S,n,n] or [T,n,n] FLOAT; output like x. Caches for the backward, both or none, flat, with
   m = n rounded up to a multiple of 8: normOut [2*numIters*T*n*m], sumOut [2*numIters*T*m] FLOAT. Their
   order is this library's. The padding between n and m is set to zero: equal inputs give equal caches, to the last
   byte. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcSinkhornGetWorkspaceSize(
    const aclTensor *x, float eps, int64_t numIters, aclTensor *output, aclTensor *normOut,
    aclTensor *sumOut, uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcSinkhorn(void *workspace, uint64_t workspaceSize,
                                                 aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_SINKHORN_H_ */
