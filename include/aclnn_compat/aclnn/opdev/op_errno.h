/* Status codes of the aclnn calls. */
#ifndef ANABRANCH_ACLNN_COMPAT_OP_ERRNO_H_
#define ANABRANCH_ACLNN_COMPAT_OP_ERRNO_H_

#include <stdint.h>

/* Status of an aclnn call: 0 or one of these. */
typedef int32_t aclnnStatus;

static const aclnnStatus ACLNN_SUCCESS = 0;
static const aclnnStatus ACLNN_ERR_PARAM_NULLPTR = 161001; /* a required argument is null */
static const aclnnStatus ACLNN_ERR_PARAM_INVALID = 161002; /* dtype, format, shape or attribute */
static const aclnnStatus ACLNN_ERR_RUNTIME_ERROR = 361001; /* not supported, or a fault */
static const aclnnStatus ACLNN_ERR_INNER_NULLPTR = 561103; /* n or D beyond a platform's limits */

#endif /* ANABRANCH_ACLNN_COMPAT_OP_ERRNO_H_ */
