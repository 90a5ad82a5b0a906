#include "tests/fuzz/call.h"

#include <algorithm>
#include <cstring>

namespace anabranch::fuzz {
namespace {

constexpr std::int64_t kMostBytes = 1 << 16;  // of a tensor that gets memory

Case PickCase(Input* in, const OperatorEntry& entry) {
  static constexpr std::int64_t kStreams[] = {4, 1, 2, 3, 4, 5, 8, 16};
  static constexpr std::int64_t kHidden[] = {16, 1, 2, 7, 15, 17, 33};
  static constexpr DType kTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16,
                                     DType::kFloat64};
  static constexpr std::int64_t kTokens[] = {2, 1, 3, 0};
  Case c;
  c.variant = in->Below(static_cast<int>(entry.variants.size()));
  c.dtype = in->Pick(kTypes);
  c.batch = 1 + in->Below(2);
  c.seq = in->Pick(kTokens);
  c.n = in->Pick(kStreams);
  c.d = in->Pick(kHidden);
  c.sources = 1 + in->Below(5);
  if (c.n == 16 && c.d > 2) c.d = 2;  // a projection costs n^3 d a token
  c.num_iters = 1 + in->Below(3);
  if (entry.supports(c)) return c;
  c.n = 4;
  c.sources = 3;
  if (entry.supports(c)) return c;
  c.dtype = DType::kFloat32;
  for (c.variant = 0; !entry.supports(c); ++c.variant) {
  }
  return c;
}

// Lowest and highest offset of a view in elements; false if that does not fit small memory.
bool Extent(const TensorView& view, std::int64_t* low, std::int64_t* high) {
  if (view.rank() > kMaxRank || view.strides.rank != view.rank()) return false;
  *low = *high = 0;
  for (int i = 0; i < view.rank(); ++i) {
    if (view.sizes[i] == 0) {
      *low = *high = 0;
      return true;
    }
    std::int64_t extent = 0;
    if (view.sizes[i] < 0) return false;
    if (__builtin_mul_overflow(view.sizes[i] - 1, view.strides[i], &extent)) return false;
    std::int64_t& side = extent < 0 ? *low : *high;
    if (__builtin_add_overflow(side, extent, &side)) return false;
    if (*low < -kMostBytes || *high > kMostBytes) return false;
  }
  return true;
}

// Wraps around where the stride was spoilt before.
std::int64_t Times(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

void Flatten(const Case& c, std::vector<TensorSpec>* specs) {
  const std::int64_t padded = (c.n + 7) / 8 * 8;
  for (TensorSpec& spec : *specs) {
    const std::int64_t sums = 2 * c.num_iters * c.tokens() * padded;
    if (spec.name == "sum_out") spec.sizes = {sums};
    if (spec.name == "norm_out") spec.sizes = {sums * c.n};
  }
}

// Values of the kinds that arithmetic stumbles over; most tensors are ones.
void Fill(Input* in, DType dtype, std::byte* to, std::size_t bytes) {
  static constexpr std::uint32_t kFloats[] = {0x3f800000, 0,          0x7fc00000, 0x7f800000,
                                              0xff800000, 1,          0x807fffff, 0x7f7fffff,
                                              0xbf800000, 0x42c80000, 0xc2c80000, 0x00800000};
  static constexpr std::uint16_t kHalves[] = {0x3f80, 0,      0x7fc0, 0x7f80, 0xff80, 1,
                                              0x807f, 0x7f7f, 0xbf80, 0x7c00, 0x3c00, 0x7bff};
  const int kind = in->Below(16) % 12;
  const std::size_t element = DTypeSize(dtype);
  const double wide = kind == 1 ? 0 : kind == 2 ? __builtin_nan("") : kind == 3 ? 1e300 : 1;
  const bool mixed = in->Chance(64);
  for (std::size_t k = 0; element > 0 && k + element <= bytes; k += element) {
    const int which =
        mixed ? static_cast<int>((k / element + static_cast<std::size_t>(kind)) % 12) : kind;
    if (element == 2) std::memcpy(to + k, &kHalves[which], 2);
    if (element == 4) std::memcpy(to + k, &kFloats[which], 4);
    if (element == 8) std::memcpy(to + k, &wide, 8);
  }
}

template <class T>
void OneNan(std::byte* element, T infinity, T nan) {
  T bits;
  std::memcpy(&bits, element, sizeof(T));
  if ((bits & static_cast<T>(~T{0} >> 1)) > infinity) std::memcpy(element, &nan, sizeof(T));
}

}  // namespace

const OperatorEntry& PickOperator(Input* in) {
  const auto operators = Operators();
  return operators[static_cast<std::size_t>(in->Below(static_cast<int>(operators.size())))];
}

RandomCall::RandomCall(Input* in, const OperatorEntry& entry, bool flat_caches)
    : entry_(entry), case_(PickCase(in, entry)) {
  std::vector<TensorSpec> specs = entry.tensors(case_);
  if (flat_caches && std::string(entry.op) == "mhc_sinkhorn") Flatten(case_, &specs);
  for (TensorSpec& spec : specs) arguments_.push_back(Make(in, std::move(spec)));
}

bool RandomCall::real() const {
  return std::all_of(arguments_.begin(), arguments_.end(),
                     [](const Argument& a) { return a.real; });
}

TensorView RandomCall::operator()(const char* name) const {
  for (const Argument& a : arguments_) {
    if (IsNamed(a, name)) return a.view;
  }
  return TensorView();
}

std::vector<TensorView> RandomCall::List(const char* name) const {
  const std::string start = std::string(name) + "[";
  std::vector<TensorView> list;
  for (const Argument& a : arguments_) {
    if (a.spec.name.compare(0, start.size(), start) == 0) list.push_back(a.view);
  }
  return list;
}

Argument RandomCall::Make(Input* in, TensorSpec spec) {
  Argument argument;
  argument.view = TensorView(nullptr, spec.dtype, spec.sizes);
  argument.spec = std::move(spec);
  if (in->Chance(20)) {
    plain_ = false;
    Spoil(in, &argument);
  }
  Back(in, &argument);
  return argument;
}

Argument& RandomCall::Vary(Input* in) {
  varied_ = &arguments_[static_cast<std::size_t>(in->Below(static_cast<int>(arguments_.size())))];
  before_ = varied_->view;
  Spoil(in, varied_);
  if (varied_->view.data == nullptr && in->Chance(240)) varied_->view.data = &before_;
  return *varied_;
}

void RandomCall::Undo() { varied_->view = before_; }

// Changes one thing, or two.
void RandomCall::Spoil(Input* in, Argument* argument) {
  TensorView& view = argument->view;
  const int rank = std::min(view.rank(), kMaxRank);
  const auto dimension = [&] { return rank == 0 ? 0 : in->Below(rank); };
  static constexpr DType kTypes[] = {DType::kUndefined, DType::kFloat32, DType::kBFloat16,
                                     DType::kFloat16,   DType::kFloat64, static_cast<DType>(77)};
  switch (in->Below(14)) {
    case 0:
      view.dtype = in->Pick(kTypes);
      break;
    case 1:
      view.sizes[dimension()] = in->Below(20);
      view.strides = ContiguousStrides(view.sizes);
      break;
    case 2:
      view.sizes[dimension()] = in->Wide();
      view.strides = ContiguousStrides(view.sizes);
      break;
    case 3: {
      const int i = dimension();
      const int j = dimension();
      std::swap(view.sizes[i], view.sizes[j]);
      std::swap(view.strides[i], view.strides[j]);
      break;
    }
    case 4:
      view.strides[dimension()] = in->Below(100) - 20;
      break;
    case 5:
      view.strides[dimension()] = in->Wide();
      break;
    case 6:
      for (int k = 1 + in->Below(9); k > 0; --k) view.sizes.push_back(1);
      view.strides = ContiguousStrides(view.sizes);
      break;
    case 7:
      if (view.sizes.rank > 0) --view.sizes.rank;
      view.strides = ContiguousStrides(view.sizes);
      break;
    case 8:
      view.strides.rank = in->Below(kMaxRank + 2);
      break;
    case 9:  // padded rows
      if (rank >= 2) {
        for (int i = 0; i + 1 < rank; ++i) view.strides[i] = Times(view.strides[i], 2);
      }
      break;
    case 10:
      for (int i = 0; i < rank; ++i) view.strides[i] = Times(view.strides[i], -1);
      break;
    case 11:
      view = TensorView();
      break;
    case 12:
      for (int i = 0; i < rank; ++i) view.strides[i] = 0;
      break;
    default:
      for (int i = 0; i < rank; ++i) view.sizes[i] = in->Chance(128) ? 0 : in->Wide();
      view.strides = ContiguousStrides(view.sizes);
  }
  if (in->Chance(64)) Spoil(in, argument);
}

// Gives the view its memory, or an address that nobody may use.
void RandomCall::Back(Input* in, Argument* argument) {
  TensorView& view = argument->view;
  if (!view.defined()) return;
  std::int64_t high = 0;
  const auto element = static_cast<std::int64_t>(std::max<std::size_t>(DTypeSize(view.dtype), 1));
  const bool fits = Extent(view, &argument->low, &high) && DTypeSize(view.dtype) != 0;
  if (!fits) argument->low = high = 0;
  argument->low = -argument->low;
  argument->span = high + argument->low + 1;
  if (!fits || argument->span * element > kMostBytes || in->Chance(4)) {
    argument->real = view.numel() == 0;  // memory without elements is never touched
    argument->low = 0;
    argument->span = std::max<std::int64_t>(view.numel(), 0);
    view.data = in->Chance(32) ? nullptr : reinterpret_cast<void*>(std::uintptr_t{1} << 20);
    return;
  }
  if (in->Chance(3) && !arguments_.empty()) {  // the memory of another tensor
    const Argument& other =
        arguments_[static_cast<std::size_t>(in->Below(static_cast<int>(arguments_.size())))];
    const auto size =
        static_cast<std::int64_t>(std::max<std::size_t>(DTypeSize(other.view.dtype), 1));
    if (other.memory && other.low == 0 && other.span * size >= argument->span * element &&
        argument->low == 0) {
      aliased_ = true;
      plain_ = false;
      view.data = other.view.data;
      return;
    }
  }
  const auto bytes = static_cast<std::size_t>(argument->span * element);
  argument->memory = std::make_unique<std::byte[]>(bytes);
  Fill(in, view.dtype, argument->memory.get(), bytes);
  view.data = argument->memory.get() + argument->low * element;
}

std::string RandomCall::Contents() const {
  std::string all;
  for (const Argument& a : arguments_) {
    if (!a.memory) continue;
    all.append(reinterpret_cast<const char*>(a.memory.get()),
               static_cast<std::size_t>(a.span) * DTypeSize(a.view.dtype));
  }
  return all;
}

void RandomCall::ForgetPayloads() {
  for (const Argument& a : arguments_) {
    if (!a.memory || !a.spec.output) continue;
    const std::size_t size = DTypeSize(a.view.dtype);
    for (std::int64_t k = 0; k < a.span; ++k) {
      std::byte* element = a.memory.get() + static_cast<std::size_t>(k) * size;
      if (a.view.dtype == DType::kFloat16) OneNan<std::uint16_t>(element, 0x7c00, 0x7e00);
      if (a.view.dtype == DType::kBFloat16) OneNan<std::uint16_t>(element, 0x7f80, 0x7fc0);
      if (size == 4) OneNan<std::uint32_t>(element, 0x7f800000, 0x7fc00000);
      if (size == 8) OneNan<std::uint64_t>(element, 0x7ff0ULL << 48, 0x7ff8ULL << 48);
    }
  }
}

void RandomCall::Restore(const std::string& contents) {
  std::size_t at = 0;
  for (const Argument& a : arguments_) {
    if (!a.memory) continue;
    const std::size_t bytes = static_cast<std::size_t>(a.span) * DTypeSize(a.view.dtype);
    std::memcpy(a.memory.get(), contents.data() + at, bytes);
    at += bytes;
  }
}

}  // namespace anabranch::fuzz
