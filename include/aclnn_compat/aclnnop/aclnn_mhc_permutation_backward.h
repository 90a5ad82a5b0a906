/* aclnnMhcPermutationBackward: the gradient of aclnnMhcPermutation. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PERMUTATION_BACKWARD_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PERMUTATION_BACKWARD_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1. gradHRes [..,n,n] FLOAT; logits [..,n!] FLOAT; gradLogits like logits. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPermutationBackwardGetWorkspaceSize(
    const aclTensor *gradHRes, const aclTensor *logits, aclTensor *gradLogits,
    uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPermutationBackward(void *workspace,
                                                            uint64_t workspaceSize,
                                                            aclOpExecutor *executor,
                                                            aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PERMUTATION_BACKWARD_H_ */
