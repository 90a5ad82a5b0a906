// Uses nothing but installed headers, from C++17.
#include <anabranch/mhc.h>

#include <cstdio>

int main() {
  float x[4] = {1, 2, 3, 4};
  float h_out[1] = {10};
  float h_post[4] = {1, 0, 0, 1};
  float y[4] = {};
  anabranch::MhcPostArgs args;
  args.x = anabranch::TensorView(x, anabranch::DType::kFloat32, {1, 4, 1});
  args.h_out = anabranch::TensorView(h_out, anabranch::DType::kFloat32, {1, 1});
  args.h_post = anabranch::TensorView(h_post, anabranch::DType::kFloat32, {1, 4});
  args.y = anabranch::TensorView(y, anabranch::DType::kFloat32, {1, 4, 1});
  anabranch::Plan plan;
  anabranch::Status status = anabranch::Prepare(args, &plan);
  if (status.ok()) status = plan.Run();
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 1;
  }
  std::printf("%g %g %g %g\n", y[0], y[1], y[2], y[3]);
  return y[0] == 11 && y[1] == 2 && y[2] == 3 && y[3] == 14 ? 0 : 1;
}
