// `anabranch check --write-cases`: random awkward calls with their results, for other faces to
// repeat.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/tools/commands.h"
#include "src/tools/harness/harness.h"

namespace anabranch::tools {
namespace {

nlohmann::json List(const Dims& dims) {
  return std::vector<std::int64_t>(dims.begin(), dims.end());
}

// Appends the memory that an input spans (with what lies between its elements), or an output's
// elements, one element behind a multiple of 64 bytes.
nlohmann::json WriteTensor(const TensorSpec& spec, const TensorView& view, std::string* data) {
  const std::size_t element = DTypeSize(view.dtype);
  data->resize((data->size() + 63) / 64 * 64 + element, '\xff');
  const std::size_t offset = data->size();
  if (spec.output) {
    *data += harness::Bits(view);
  } else if (view.numel() > 0) {
    std::int64_t span = 1;
    for (int i = 0; i < view.rank(); ++i) span += (view.sizes[i] - 1) * view.strides[i];
    data->append(static_cast<const char*>(view.data), static_cast<std::size_t>(span) * element);
  }
  return {{"name", spec.name},
          {"output", spec.output},
          {"dtype", DTypeName(view.dtype)},
          {"sizes", List(view.sizes)},
          {"strides", List(spec.output ? ContiguousStrides(view.sizes) : view.strides)},
          {"offset", offset}};
}

nlohmann::json WriteCase(const OperatorEntry& entry, harness::Random random, std::string* data) {
  const Case c = harness::RandomCase(entry, random, 4000);
  harness::CaseTensors tensors = Allocate(entry, c, harness::Layout::kAwkward, random);
  FillInputs(entry, c, tensors, random);
  const Status status = RunCase(entry, c, tensors, Context());
  if (!status.ok()) throw UsageError{status.message()};
  nlohmann::json all = nlohmann::json::array();
  for (std::size_t k = 0; k < tensors.specs.size(); ++k) {
    all.push_back(WriteTensor(tensors.specs[k], tensors.buffers[k].view, data));
  }
  return {{"operator", entry.name},
          {"case", harness::ToString(entry, c)},
          {"variant", entry.variants[static_cast<std::size_t>(c.variant)]},
          {"in_pytorch", InPyTorch(entry, c)},
          {"n", c.n},
          {"num_iters", c.num_iters},
          {"logit_scale", c.logit_scale},
          {"tensors", all}};
}

void WriteFile(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw UsageError{"--write-cases: cannot write " + path.string()};
}

}  // namespace

int WriteCases(const std::vector<const OperatorEntry*>& entries, const CheckOptions& options) {
  std::string data;
  nlohmann::json cases = nlohmann::json::array();
  for (const OperatorEntry* entry : entries) {
    for (std::int64_t k = 0; k < options.cases; ++k) {
      cases.push_back(WriteCase(*entry, CaseRandom(*entry, options.seed, k), &data));
    }
  }
  const std::filesystem::path folder = options.write_cases;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  WriteFile(folder / "data.bin", data);
  WriteFile(folder / "cases.json", cases.dump(1) + "\n");
  std::printf("%zu cases in %s\n", cases.size(), folder.c_str());
  return 0;
}

}  // namespace anabranch::tools
