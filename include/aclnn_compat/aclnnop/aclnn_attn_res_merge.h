/* aclnnAttnResMerge: adds one source to one query of aclnnAttnResPrepare.
   An operator of this library; no other vendor declares it. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_ATTN_RES_MERGE_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_ATTN_RES_MERGE_H_

#include "aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1. o [.., D], m and l [..], FLOAT: one query of aclnnAttnResPrepare; v [.., D], BF16,
   FLOAT16 or FLOAT; query, rmsnormGammaOptional [D] or [1,D], FLOAT or v's dtype; h like v. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnAttnResMergeGetWorkspaceSize(const aclTensor *o,
    const aclTensor *m, const aclTensor *l, const aclTensor *v, const aclTensor *query,
    const aclTensor *rmsnormGammaOptional, double scale, double rmsnormEps, bool enableRmsnorm,
    aclTensor *h, uint64_t *workspaceSize, aclOpExecutor **executor);

/* Phase 2: queues the work on `stream` and returns. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnAttnResMerge(void *workspace, uint64_t workspaceSize,
    aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_ATTN_RES_MERGE_H_ */
