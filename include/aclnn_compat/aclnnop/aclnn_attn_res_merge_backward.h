/* aclnnAttnResMergeBackward: gradients of aclnnAttnResMerge. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_ATTN_RES_MERGE_BACKWARD_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_ATTN_RES_MERGE_BACKWARD_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1. gradH [.., D]; inputs as in the forward; gradO, gradM, gradL FLOAT like o, m, l; gradV
   like v; gradQuery and gradRmsnormGamma like their parameter; the latter is left untouched
   without gamma. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnAttnResMergeBackwardGetWorkspaceSize(const aclTensor *gradH,
    const aclTensor *o, const aclTensor *m, const aclTensor *l, const aclTensor *v,
    const aclTensor *query, const aclTensor *rmsnormGammaOptional, double scale,
    double rmsnormEps, bool enableRmsnorm, aclTensor *gradO, aclTensor *gradM, aclTensor *gradL,
    aclTensor *gradV, aclTensor *gradQuery, aclTensor *gradRmsnormGamma, uint64_t *workspaceSize,
    aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnAttnResMergeBackward(void *workspace, uint64_t workspaceSize,
    aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_ATTN_RES_MERGE_BACKWARD_H_ */
