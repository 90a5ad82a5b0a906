/* aclnnMhcPreV2: aclnnMhcPre with a choice of arithmetic. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_V2_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_V2_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1: checks, and sizes the workspace.
   x [B,S,n,D] or [T,n,D], BFLOAT16, FLOAT16 or FLOAT; all other tensors FLOAT unless said otherwise: phi [F,n*D],
   alpha [3] (or [2]: no residual part, hRes null), bias [F], gamma [n,D] or null; hIn [..,D] like x, hPost [..,n],
   hRes [..,n,n], or [..,n!] for the permutation form; F = n*n+2n, n!+2n or 2n. invRms [..], hMix [..,F],
   hPre [..,n]: all three or none. opImplMode: 0 = FP32 products, 1 = HF32 products
   allowed; anything else is refused. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPreV2GetWorkspaceSize(
    const aclTensor *x, const aclTensor *phi, const aclTensor *alpha, const aclTensor *bias,
    const aclTensor *gammaOptional, double normEps, double hcEps, int64_t opImplMode, aclTensor *hIn, aclTensor *hPost, aclTensor *hRes,
    aclTensor *invRmsOptional, aclTensor *hMixOptional, aclTensor *hPreOptional,
    uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPreV2(void *workspace, uint64_t workspaceSize,
                                        aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_V2_H_ */
