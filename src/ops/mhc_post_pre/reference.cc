// mhc_post_pre as it is defined: one after the other.
#include <stdexcept>

#include "anabranch/mhc_post.h"
#include "anabranch/mhc_pre_sinkhorn.h"
#include "src/ops/mhc_post_pre/mhc_post_pre.h"

namespace anabranch {
namespace {

template <class Args>
void RunValidated(const Args& args) {
  Plan plan;
  Status status = Prepare(args, &plan);
  if (status.ok()) status = plan.Run();
  if (!status.ok()) throw std::logic_error(status.message());
}

}  // namespace

void MhcPostPreReference(const MhcPostPreArgs& a) {
  MhcPostArgs post;
  post.x = a.x;
  post.h_res = a.h_res;
  post.h_out = a.h_out;
  post.h_post = a.h_post;
  post.y = a.y;
  RunValidated(post);
  MhcPreSinkhornArgs pre;
  pre.x = a.y;
  pre.phi = a.phi;
  pre.alpha = a.alpha;
  pre.bias = a.bias;
  pre.h_in = a.h_in;
  pre.h_post = a.next_h_post;
  pre.h_res = a.next_h_res;
  pre.h_pre = a.h_pre;
  pre.h_mix = a.h_mix;
  pre.inv_rms = a.inv_rms;
  pre.sum_out = a.sum_out;
  pre.norm_out = a.norm_out;
  pre.options = a.options;
  RunValidated(pre);
}

}  // namespace anabranch
