/* aclnnMhcPreSinkhornBackward: gradients of aclnnMhcPreSinkhorn. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_SINKHORN_BACKWARD_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_SINKHORN_BACKWARD_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1: checks, and sizes the workspace.
   Tensors as in the forward; the number of iterations is half the first dimension of sumOut. gradHin, x and gradX
   are BFLOAT16, FLOAT16 or FLOAT, everything else FLOAT. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPreSinkhornBackwardGetWorkspaceSize(
    const aclTensor *gradHin, const aclTensor *gradHPost, const aclTensor *gradHRes,
    const aclTensor *x, const aclTensor *phi, const aclTensor *alpha, const aclTensor *bias,
    const aclTensor *hPre, const aclTensor *hcBeforeNorm, const aclTensor *invRms,
    const aclTensor *sumOut, const aclTensor *normOut, double hcEps, const aclTensor *gradX,
    const aclTensor *gradPhi, const aclTensor *gradAlpha, const aclTensor *gradBias,
    uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPreSinkhornBackward(void *workspace, uint64_t workspaceSize,
                                        aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_SINKHORN_BACKWARD_H_ */
