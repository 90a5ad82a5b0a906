/* Model loading is not part of this library; the name is here for programs that include it. */
#ifndef ANABRANCH_ACLNN_COMPAT_ACL_MDL_H_
#define ANABRANCH_ACLNN_COMPAT_ACL_MDL_H_
#include "acl/acl_base.h"
#include "acl/acl_rt.h"
#endif /* ANABRANCH_ACLNN_COMPAT_ACL_MDL_H_ */
