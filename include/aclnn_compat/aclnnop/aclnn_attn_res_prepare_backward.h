/* aclnnAttnResPrepareBackward: gradients of aclnnAttnResPrepare. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_ATTN_RES_PREPARE_BACKWARD_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_ATTN_RES_PREPARE_BACKWARD_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1. gradO [S, .., D], gradM and gradL [S, ..], FLOAT; inputs as in the forward;
   gradBlocksOptional: a tensor a block; gradQueries and gradRmsnormGamma like their parameter; the
   latter is left untouched without gamma. */
ACL_FUNC_VISIBILITY aclnnStatus
    aclnnAttnResPrepareBackwardGetWorkspaceSize(const aclTensor *gradO, const aclTensor *gradM,
    const aclTensor *gradL, const aclTensorList *blocksOptional, const aclTensor *queries,
    const aclTensor *rmsnormGammaOptional, double scale, double rmsnormEps, bool enableRmsnorm,
    const aclTensorList *gradBlocksOptional, aclTensor *gradQueries, aclTensor *gradRmsnormGamma,
    uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnAttnResPrepareBackward(void *workspace,
    uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_ATTN_RES_PREPARE_BACKWARD_H_ */
