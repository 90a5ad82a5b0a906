/* aclnnBlockAttnResBackward: gradients of aclnnBlockAttnRes. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_BLOCK_ATTN_RES_BACKWARD_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_BLOCK_ATTN_RES_BACKWARD_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1. gradH [.., D]; blocks, projWeight, partialBlockOptional, rmsnormGammaOptional as in the
   forward; alpha [.., L] FLOAT, required; rmsOptional [.., L, 1] FLOAT, recomputed with rmsnormEps
   if null. gradBlocks: a tensor a block; gradPartialBlock with a partial block; gradProjWeight and
   gradRmsnormGamma like their parameter; gradRmsnormGamma is left untouched without gamma. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnBlockAttnResBackwardGetWorkspaceSize(const aclTensor *gradH,
    const aclTensorList *blocks, const aclTensor *projWeight, const aclTensor *alpha,
    const aclTensor *partialBlockOptional, const aclTensor *rmsnormGammaOptional,
    const aclTensor *rmsOptional, double scale, double rmsnormEps, bool enableRmsnorm,
    const aclTensorList *gradBlocks, aclTensor *gradPartialBlock, aclTensor *gradProjWeight,
    aclTensor *gradRmsnormGamma, uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnBlockAttnResBackward(void *workspace, uint64_t workspaceSize,
    aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_BLOCK_ATTN_RES_BACKWARD_H_ */
