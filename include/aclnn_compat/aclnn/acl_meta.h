/* Tensors and lists of tensors: descriptions of memory that the program owns. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACL_META_H_
#define ANABRANCH_ACLNN_COMPAT_ACL_META_H_

#include "acl/acl_base.h"
#include "aclnn/opdev/op_errno.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aclOpExecutor aclOpExecutor;
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclFloatArray aclFloatArray;
typedef struct aclBoolArray aclBoolArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclScalarList aclScalarList;

/* Describes a strided view. `stride` (null: dense) and `offset` count elements; the storage shape
   bounds what the view may reach: offset + sum((dim-1)*stride) < product(storageDims). Any
   element-aligned address is fine; rank 0 is a scalar. Null, with a message, if the view is wrong. */
ACL_FUNC_VISIBILITY aclTensor *aclCreateTensor(const int64_t *viewDims, uint64_t viewDimsNum,
                                               aclDataType dataType, const int64_t *stride,
                                               int64_t offset, aclFormat format,
                                               const int64_t *storageDims, uint64_t storageDimsNum,
                                               void *tensorData);

/* Destroys the description, not the memory. Null is harmless; an unknown handle answers 161002. */
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyTensor(const aclTensor *tensor);

/* A list that owns its members: do not destroy them one by one. Null, with a message, on failure. */
ACL_FUNC_VISIBILITY aclTensorList *aclCreateTensorList(const aclTensor *const *value, uint64_t size);

/* Destroys the list and its members. */
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyTensorList(const aclTensorList *array);

#ifdef __cplusplus
}
#endif

#endif /* ANABRANCH_ACLNN_COMPAT_ACL_META_H_ */
