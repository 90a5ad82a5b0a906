/* The published interface against our headers, as C99 and as C++11: signatures, values, and that
   every function is there. */
#include <stdio.h>

#include "acl/acl.h"
#include "acl/acl_mdl.h"
#include "acl/acl_op.h"
#include "aclnn/acl_meta.h"
#include "aclnn/aclnn_base.h"
#include "aclnn/opdev/op_errno.h"
#include "aclnnop/aclnn_ops_transformer.h"

#define CT const aclTensor*
#define T aclTensor*
#define CL const aclTensorList*
#define R uint64_t*, aclOpExecutor**
#define PHASE2 void*, uint64_t, aclOpExecutor*, aclrtStream

#ifdef __cplusplus
extern "C" {
#endif
#define F(result, name, arguments) result name arguments;
#define V(name, number)
#include "interface.def"
#undef F
#undef V
#ifdef __cplusplus
}
#endif

typedef void (*Function)(void);

int main(void) {
  int wrong = 0;
#define F(result, name, arguments)               \
  if ((Function)name == (Function)0) {           \
    fprintf(stderr, "%s is not there\n", #name); \
    ++wrong;                                     \
  }
#define V(name, number)                                                                \
  if ((long)(name) != (long)(number)) {                                                \
    fprintf(stderr, "%s is %ld, expected %ld\n", #name, (long)(name), (long)(number)); \
    ++wrong;                                                                           \
  }
#include "interface.def"
  return wrong == 0 ? 0 : 1;
}
