/* aclnnBlockAttnRes: a softmax-weighted sum over the outputs of earlier blocks.
   An operator of this library; no other vendor declares it. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_BLOCK_ATTN_RES_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_BLOCK_ATTN_RES_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1. blocks: 1..127 tensors [.., D], BF16, FLOAT16 or FLOAT; partialBlockOptional: one more
   of them or null; projWeight, rmsnormGammaOptional [D] or [1,D], FLOAT or the blocks' dtype; h
   like a block; rmsOptional [.., L, 1] (the denominator) and alphaOptional [.., L] FLOAT, L =
   blocks plus partial. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnBlockAttnResGetWorkspaceSize(const aclTensorList *blocks,
    const aclTensor *projWeight, const aclTensor *partialBlockOptional,
    const aclTensor *rmsnormGammaOptional, double scale, double rmsnormEps, bool enableRmsnorm,
    aclTensor *h, aclTensor *rmsOptional, aclTensor *alphaOptional, uint64_t *workspaceSize,
    aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnBlockAttnRes(void *workspace, uint64_t workspaceSize,
    aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_BLOCK_ATTN_RES_H_ */
