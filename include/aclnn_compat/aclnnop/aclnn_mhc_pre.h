/* aclnnMhcPre: collapse the residual streams into a sublayer's input, and mixing coefficients. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1: checks, and sizes the workspace.
   x [B,S,n,D] or [T,n,D], BFLOAT16, FLOAT16 or FLOAT; all other tensors FLOAT unless said otherwise: phi [F,n*D],
   alpha [3] (or [2]: no residual part, hRes null), bias [F], gamma [n,D] or null; hIn [..,D] like x, hPost [..,n],
   hRes [..,n,n], or [..,n!] for the permutation form; F = n*n+2n, n!+2n or 2n. invRms [..], hMix [..,F],
   hPre [..,n]: all three or none. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPreGetWorkspaceSize(
    const aclTensor *x, const aclTensor *phi, const aclTensor *alpha, const aclTensor *bias,
    const aclTensor *gammaOptional, double normEps, double hcEps, aclTensor *hIn, aclTensor *hPost, aclTensor *hRes,
    aclTensor *invRmsOptional, aclTensor *hMixOptional, aclTensor *hPreOptional,
    uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPre(void *workspace, uint64_t workspaceSize,
                                        aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_H_ */
