/* All operators of this library. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACLNN_OPS_TRANSFORMER_H_
#define ANABRANCH_ACLNN_COMPAT_ACLNN_OPS_TRANSFORMER_H_

#include "aclnnop/aclnn_attn_res_merge.h"
#include "aclnnop/aclnn_attn_res_merge_backward.h"
#include "aclnnop/aclnn_attn_res_prepare.h"
#include "aclnnop/aclnn_attn_res_prepare_backward.h"
#include "aclnnop/aclnn_block_attn_res.h"
#include "aclnnop/aclnn_block_attn_res_backward.h"
#include "aclnnop/aclnn_mhc_head.h"
#include "aclnnop/aclnn_mhc_head_backward.h"
#include "aclnnop/aclnn_mhc_permutation.h"
#include "aclnnop/aclnn_mhc_permutation_backward.h"
#include "aclnnop/aclnn_mhc_post.h"
#include "aclnnop/aclnn_mhc_post_backward.h"
#include "aclnnop/aclnn_mhc_pre.h"
#include "aclnnop/aclnn_mhc_pre_backward.h"
#include "aclnnop/aclnn_mhc_pre_backward_v2.h"
#include "aclnnop/aclnn_mhc_pre_sinkhorn.h"
#include "aclnnop/aclnn_mhc_pre_sinkhorn_backward.h"
#include "aclnnop/aclnn_mhc_pre_v2.h"

#include "aclnnop/aclnn_mhc_sinkhorn.h"
#include "aclnnop/aclnn_mhc_sinkhorn_backward.h"

#endif /* ANABRANCH_ACLNN_COMPAT_ACLNN_OPS_TRANSFORMER_H_ */
