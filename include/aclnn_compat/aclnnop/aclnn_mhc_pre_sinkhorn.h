/* aclnnMhcPreSinkhorn: aclnnMhcPre without gamma and Sinkhorn on its residual logits, in one pass. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_SINKHORN_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_SINKHORN_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1: checks, and sizes the workspace.
   x [B,S,n,D] or [T,n,D], BFLOAT16, FLOAT16 or FLOAT; all other tensors FLOAT unless said otherwise:
   phi [n*n+2n,n*D], alpha [3], bias [n*n+2n]; hin [..,D] like x, hPost [..,n], hRes [..,n*n] or [..,n,n].
   hcMult is n, numIters 1..1000000, hcEps both what is added to hPre and Sinkhorn's. With needBackward, and only then:
   hPre [..,n], hcBeforeNorm [..,n*n+2n], invRms [..,1] or [..], sumOut [2*numIters,..,n], normOut [2*numIters,..,n,n].
   [..] is [B,S] for x [B,S,n,D] and [T] for x [T,n,D], in all of them. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPreSinkhornGetWorkspaceSize(
    const aclTensor *x, const aclTensor *phi, const aclTensor *alpha, const aclTensor *bias, int64_t hcMult,
    int64_t numIters, double hcEps, double normEps, bool needBackward, aclTensor *hin,
    aclTensor *hPost, aclTensor *hRes, aclTensor *hPre, aclTensor *hcBeforeNorm, aclTensor *invRms,
    aclTensor *sumOut, aclTensor *normOut,
    uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPreSinkhorn(void *workspace, uint64_t workspaceSize,
                                        aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_SINKHORN_H_ */
