/* What every operator header needs: tensors, executors, status codes. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_BASE_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_BASE_H_

#include "acl/acl_base.h"
#include "acl/acl_rt.h"
#include "aclnn/acl_meta.h"
#include "aclnn/opdev/op_errno.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an executor survive its phase 2, so that it can run again; the program then destroys it. */
ACL_FUNC_VISIBILITY aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *executor);

/* Destroys an executor. Harmless for one that phase 2 has consumed; 161001 for null. */
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor);

/* Starts and ends the operator layer; harmless and not needed here. `configPath` as for aclInit. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnInit(const char *configPath);
#ifdef __cplusplus
ACL_FUNC_VISIBILITY aclnnStatus aclnnFinalize();
#else
ACL_FUNC_VISIBILITY aclnnStatus aclnnFinalize(void);
#endif

/* Give an executor another address for the storage of one of its tensors, for the next phase 2 (work
   that is queued already keeps its own). `index` counts the tensor arguments of phase 1 in the order
   of its signature, absent optional ones and lists included: all of them (aclSetTensorAddr), its inputs or
   its outputs only. `tensor` is the tensor of phase 1 or one of the same dtype, shape and strides; its
   offset counts from `addr`. The addresses are checked by the next phase 2. 161001: null; 161002: an
   unknown executor or tensor, an index beyond the arguments, an argument that was null, a list. */
ACL_FUNC_VISIBILITY aclnnStatus aclSetTensorAddr(aclOpExecutor *executor, const size_t index,
                                                 aclTensor *tensor, void *addr);
ACL_FUNC_VISIBILITY aclnnStatus aclSetInputTensorAddr(aclOpExecutor *executor, const size_t index,
                                                      aclTensor *tensor, void *addr);
ACL_FUNC_VISIBILITY aclnnStatus aclSetOutputTensorAddr(aclOpExecutor *executor, const size_t index,
                                                       aclTensor *tensor, void *addr);

/* The same for member `relativeIndex` of the list that is argument `irIndex`. */
ACL_FUNC_VISIBILITY aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor *executor, size_t irIndex,
                                                        const size_t relativeIndex,
                                                        aclTensorList *tensors, void *addr);
ACL_FUNC_VISIBILITY aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor *executor, size_t irIndex,
                                                             const size_t relativeIndex,
                                                             aclTensorList *tensors, void *addr);
ACL_FUNC_VISIBILITY aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor *executor, size_t irIndex,
                                                              const size_t relativeIndex,
                                                              aclTensorList *tensors, void *addr);

/* The same calls under their other spelling. */
ACL_FUNC_VISIBILITY aclnnStatus AclSetAclOpExecutorRepeatable(aclOpExecutor *executor);
ACL_FUNC_VISIBILITY aclnnStatus AclSetTensorAddr(aclOpExecutor *executor, const size_t index,
                                                 aclTensor *tensor, void *addr);
ACL_FUNC_VISIBILITY aclnnStatus AclSetInputTensorAddr(aclOpExecutor *executor, const size_t index,
                                                      aclTensor *tensor, void *addr);
ACL_FUNC_VISIBILITY aclnnStatus AclSetOutputTensorAddr(aclOpExecutor *executor, const size_t index,
                                                       aclTensor *tensor, void *addr);
ACL_FUNC_VISIBILITY aclnnStatus AclSetDynamicTensorAddr(aclOpExecutor *executor, size_t irIndex,
                                                        const size_t relativeIndex,
                                                        aclTensorList *tensors, void *addr);
ACL_FUNC_VISIBILITY aclnnStatus AclSetDynamicInputTensorAddr(aclOpExecutor *executor, size_t irIndex,
                                                             const size_t relativeIndex,
                                                             aclTensorList *tensors, void *addr);
ACL_FUNC_VISIBILITY aclnnStatus AclSetDynamicOutputTensorAddr(aclOpExecutor *executor, size_t irIndex,
                                                              const size_t relativeIndex,
                                                              aclTensorList *tensors, void *addr);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_BASE_H_ */
