#include <cstring>

#include "src/tools/harness/harness.h"

namespace anabranch::harness {

CaseChecker::CaseChecker(const OperatorEntry& entry, const Case& c, std::uint64_t seed,
                         Layout layout)
    : entry_(entry), case_(c) {
  Random random(seed);
  tensors_ = Allocate(entry, c, layout, random);
  FillInputs(entry, c, tensors_, random);
  RunReference();
}

void CaseChecker::Recompute() {
  Random random(1);
  RefreshCaches(entry_, case_, tensors_, random);
  RunReference();
}

void CaseChecker::RunReference() {
  want_ = InDouble(entry_, case_, tensors_);
  Case in_double = case_;
  in_double.dtype = DType::kFloat64;
  reference_ = RunCase(entry_, in_double, want_, Context());
  for (std::vector<std::string>& bits : bits_) bits.clear();
}

Verdict CaseChecker::Check(const Context& context) {
  Verdict verdict;
  if (!reference_.ok()) {
    verdict.Fail("reference: " + reference_.message());
    return verdict;
  }
  std::vector<std::vector<std::byte>> before;
  for (std::size_t k = 0; k < tensors_.specs.size(); ++k) {
    if (tensors_.specs[k].output) FillBytes(tensors_.buffers[k].view, std::byte{0xff});
    const auto bytes = tensors_.buffers[k].memory.bytes();
    before.emplace_back(bytes.begin(), bytes.end());
  }
  const Status status = RunCase(entry_, case_, tensors_, context);
  if (!status.ok()) {
    verdict.Fail(status.message());
    return verdict;
  }
  verdict = CompareOutputs(tensors_, want_);
  CheckMemory(before, &verdict);
  CheckDenseCopy(context, &verdict);
  CheckOtherTargets(context, &verdict);
  return verdict;
}

// Only elements of outputs may differ from the memory as it was.
void CaseChecker::CheckMemory(const std::vector<std::vector<std::byte>>& before,
                              Verdict* verdict) const {
  for (std::size_t k = 0; k < tensors_.specs.size(); ++k) {
    const Buffer& buffer = tensors_.buffers[k];
    const std::byte* base = buffer.memory.data();
    std::vector<std::byte> now(base, base + buffer.memory.size());
    if (tensors_.specs[k].output) {
      ForEachElement(buffer.view, [&](std::byte* p) {
        std::memcpy(now.data() + (p - base), before[k].data() + (p - base),
                    DTypeSize(buffer.view.dtype));
      });
    }
    if (now != before[k])
      verdict->Fail("memory outside the outputs changed at " + tensors_.specs[k].name);
  }
}

// Its outputs hold other bytes before the call, so that an element that neither run writes is seen
// even where the right value is the poison itself.
void CaseChecker::CheckDenseCopy(const Context& context, Verdict* verdict) const {
  CaseTensors dense = Dense(entry_, case_, tensors_);
  for (std::size_t k = 0; k < dense.specs.size(); ++k) {
    if (dense.specs[k].output) FillBytes(dense.buffers[k].view, std::byte{0x5a});
  }
  Context one = context;
  one.set_threads(1);
  const Status status = RunCase(entry_, case_, dense, one);
  if (!status.ok()) verdict->Fail("dense copy: " + status.message());
  for (std::size_t k = 0; k < tensors_.specs.size(); ++k) {
    if (!tensors_.specs[k].output) continue;
    if (Bits(tensors_.buffers[k].view) != Bits(dense.buffers[k].view)) {
      verdict->Fail(tensors_.specs[k].name + " differs in bits from a dense copy of the call");
    }
  }
}

void CaseChecker::CheckOtherTargets(const Context& context, Verdict* verdict) {
  if (context.target() == Target::kAuto || !verdict->ok) return;
  const bool fma = TargetHasFma(context.target());
  std::vector<std::string> bits;
  for (std::size_t k = 0; k < tensors_.specs.size(); ++k) {
    bits.push_back(tensors_.specs[k].output ? Bits(tensors_.buffers[k].view) : "");
  }
  std::vector<std::string>& first = bits_[fma ? 1 : 0];
  if (first.empty()) first = bits;
  for (std::size_t k = 0; k < bits.size(); ++k) {
    if (bits[k] == first[k]) continue;
    verdict->Fail(tensors_.specs[k].name + " differs in bits from another target " +
                  (fma ? "with" : "without") + " FMA");
  }
}

Verdict CheckCase(const OperatorEntry& entry, const Case& c, std::uint64_t seed,
                  const Context& context) {
  return CaseChecker(entry, c, seed).Check(context);
}

}  // namespace anabranch::harness
