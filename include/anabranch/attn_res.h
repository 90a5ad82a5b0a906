// Block attention residuals: a layer's input is a softmax-weighted sum over the outputs of earlier
// blocks. One header a form.
#ifndef ANABRANCH_ATTN_RES_H_
#define ANABRANCH_ATTN_RES_H_

#include "anabranch/attn_res_two_phase.h"
#include "anabranch/block_attn_res.h"

#endif  // ANABRANCH_ATTN_RES_H_
