// The mHC family of operators (Manifold-Constrained Hyper-Connections); one header an operator.
#ifndef ANABRANCH_MHC_H_
#define ANABRANCH_MHC_H_

#include "anabranch/mhc_head.h"
#include "anabranch/mhc_options.h"
#include "anabranch/mhc_permutation.h"
#include "anabranch/mhc_post.h"
#include "anabranch/mhc_pre.h"
#include "anabranch/mhc_pre_sinkhorn.h"
#include "anabranch/mhc_sinkhorn.h"

#endif  // ANABRANCH_MHC_H_
