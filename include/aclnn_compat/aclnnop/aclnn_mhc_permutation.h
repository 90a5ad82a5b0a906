/* aclnnMhcPermutation: hRes = sum_r softmax(logits)_r P_r over all n! permutations in lexicographic order. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PERMUTATION_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PERMUTATION_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1. logits [B,S,n!] or [T,n!] FLOAT, n = 1..5; hRes [..,n,n] FLOAT. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPermutationGetWorkspaceSize(const aclTensor *logits,
                                                                    aclTensor *hRes,
                                                                    uint64_t *workspaceSize,
                                                                    aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnMhcPermutation(void *workspace, uint64_t workspaceSize,
                                                    aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_MHC_PERMUTATION_H_ */
