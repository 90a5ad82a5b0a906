/* aclnnMhcHeadBackward: gradients of aclnnMhcHead. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_HEAD_BACKWARD_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_HEAD_BACKWARD_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1: checks, and sizes the workspace.
   Tensors as in the forward; gradY, x and gradX BFLOAT16, FLOAT16 or FLOAT, everything else FLOAT. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcHeadBackwardGetWorkspaceSize(
    const aclTensor *gradY, const aclTensor *x, const aclTensor *fn, const aclTensor *scale,
    const aclTensor *invRms, const aclTensor *hMix, const aclTensor *w, double hcEps,
    aclTensor *gradX, aclTensor *gradFn, aclTensor *gradBase, aclTensor *gradScale,
    uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcHeadBackward(void *workspace, uint64_t workspaceSize,
                                        aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_HEAD_BACKWARD_H_ */
