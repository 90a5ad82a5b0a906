// Roofs of this machine, measured by plain code in the same process as the operators.
#ifndef ANABRANCH_SRC_TOOLS_ROOFS_H_
#define ANABRANCH_SRC_TOOLS_ROOFS_H_

#include <cstddef>
#include <cstdint>

#include "anabranch/context.h"
#include "anabranch/cpu.h"

namespace anabranch::tools {

// Seconds of `flops` floating-point operations that never leave the registers, on all threads.
double MeasureFma(const Context& context, Target target, double flops);

// Ways of moving rows; the fastest is the roof.
struct StreamVariant {
  bool non_temporal = false;
  std::size_t prefetch_bytes = 0;  // ahead along each row read
  const char* name = "";
};
inline constexpr StreamVariant kStreamVariants[] = {{false, 0, "plain"},
                                                    {false, 1024, "prefetch"},
                                                    {true, 0, "non-temporal"},
                                                    {true, 512, "non-temporal, prefetch 512"},
                                                    {true, 1024, "non-temporal, prefetch 1 KiB"},
                                                    {true, 2048, "non-temporal, prefetch 2 KiB"}};

// Reads `reads` rows and writes `writes` rows of `row_bytes` for each token, laid out
// [tokens, rows, row_bytes] as the operators' tensors are, in runs of 512 bytes a row.
struct StreamCall {
  const std::byte* in;
  std::byte* out;
  std::int64_t tokens;
  int reads;
  int writes;
  std::size_t row_bytes;
};
double MeasureStream(const Context& context, Target target, const StreamCall& call,
                     const StreamVariant& variant);

}  // namespace anabranch::tools

#endif  // ANABRANCH_SRC_TOOLS_ROOFS_H_
