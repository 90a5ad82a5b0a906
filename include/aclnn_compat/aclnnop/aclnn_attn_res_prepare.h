/* aclnnAttnResPrepare: several queries over the same blocks, for aclnnAttnResMerge.
   An operator of this library; no other vendor declares it. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_ATTN_RES_PREPARE_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_ATTN_RES_PREPARE_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1. blocksOptional: up to 127 tensors [.., D], BF16, FLOAT16 or FLOAT, or null; queries
   [S,D], FLOAT or the blocks' dtype; rmsnormGammaOptional [D] or [S,D]; o [S, .., D], m and l [S,
   ..], FLOAT. */
ACL_FUNC_VISIBILITY aclnnStatus
    aclnnAttnResPrepareGetWorkspaceSize(const aclTensorList *blocksOptional,
    const aclTensor *queries, const aclTensor *rmsnormGammaOptional, double scale,
    double rmsnormEps, bool enableRmsnorm, aclTensor *o, aclTensor *m, aclTensor *l,
    uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnAttnResPrepare(void *workspace, uint64_t workspaceSize,
    aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_ATTN_RES_PREPARE_H_ */
