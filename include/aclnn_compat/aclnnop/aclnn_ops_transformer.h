/* All operators of this library. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_OPS_TRANSFORMER_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_OPS_TRANSFORMER_H_

#include "aclnnop/aclnn_mhc_post.h"
#include "aclnnop/aclnn_mhc_post_backward.h"

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_OPS_TRANSFORMER_H_ */
