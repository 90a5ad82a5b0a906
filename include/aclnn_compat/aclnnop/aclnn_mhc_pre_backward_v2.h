/* aclnnMhcPreBackwardV2: aclnnMhcPreBackward with a choice of arithmetic. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_BACKWARD_V2_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_BACKWARD_V2_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1: checks, and sizes the workspace.
   x, gradHIn, gradXPost, gradX: BFLOAT16, FLOAT16 or FLOAT; everything else FLOAT. Shapes as in the forward;
   alpha [3], or [2] where there is no residual part: then gradHRes is null. gradXPost like x or null (added to gradX
   before rounding). gradGamma is required when gamma is given and left untouched otherwise. opImplMode: 0 = FP32
   products, 1 = HF32 products allowed; anything else is refused. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPreBackwardV2GetWorkspaceSize(
    const aclTensor *x, const aclTensor *phi, const aclTensor *alpha, const aclTensor *gradHIn,
    const aclTensor *gradHPost, const aclTensor *gradHRes, const aclTensor *invRms,
    const aclTensor *hMix, const aclTensor *hPre, const aclTensor *hPost,
    const aclTensor *gammaOptional, const aclTensor *gradXPostOptional, float hcEps, int64_t opImplMode, const aclTensor *gradX,
    const aclTensor *gradPhi, const aclTensor *gradAlpha, const aclTensor *gradBias,
    const aclTensor *gradGamma,
    uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPreBackwardV2(void *workspace, uint64_t workspaceSize,
                                        aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PRE_BACKWARD_V2_H_ */
