#include "src/tools/harness/harness.h"

namespace anabranch::harness {
namespace {

// FNV-1a, 64 bits.
void Add(const std::string& bytes, std::uint64_t* hash) {
  for (unsigned char byte : bytes) *hash = (*hash ^ byte) * 0x100000001b3u;
}

}  // namespace

Status MakeDigest(const OperatorEntry& entry, Target target, Digest* digest) {
  constexpr std::uint64_t kSeed = 20240607;
  constexpr int kCases = 24;
  *digest = Digest();
  Random random(kSeed);
  for (int k = 0; k < kCases; ++k) {
    const Case c = RandomCase(entry, random);
    CaseTensors tensors = Allocate(entry, c, Layout::kDense, random);
    FillInputs(entry, c, tensors, random);
    Status status = RunCase(entry, c, tensors, Context().set_target(target));
    if (!status.ok()) return status;
    for (std::size_t t = 0; t < tensors.specs.size(); ++t) {
      Add(Bits(tensors.buffers[t].view),
          tensors.specs[t].output ? &digest->outputs : &digest->inputs);
    }
  }
  return Status();
}

}  // namespace anabranch::harness
