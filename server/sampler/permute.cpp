#include "server/sampler/permute.h"

#include <algorithm>

// Sizeless vectors cannot stand in arrays; machines with SVE run the NEON code.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/sampler/permute.cpp"
#include <hwy/foreach_target.h>
// foreach_target comes before highway.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headrace::server::sampler {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<std::uint64_t>;

// See clientlib/draws/permutation.h.
HWY_INLINE hn::Vec<D> mix(hn::Vec<D> z) {
  const D d;
  z = hn::Mul(hn::Xor(z, hn::ShiftRight<30>(z)), hn::Set(d, 0xBF58476D1CE4E5B9));
  z = hn::Mul(hn::Xor(z, hn::ShiftRight<27>(z)), hn::Set(d, 0x94D049BB133111EB));
  return hn::Xor(z, hn::ShiftRight<31>(z));
}

HWY_INLINE hn::Vec<D> permute_vector(const draws::Feistel& feistel, hn::Vec<D> x) {
  const D d;
  const auto half = static_cast<int>(feistel.half_bits);
  const auto mask = hn::Set(d, (std::uint64_t{1} << feistel.half_bits) - 1);
  const auto last = hn::Set(d, feistel.n - 1);
  for (auto walking = hn::FirstN(d, hn::Lanes(d)); !hn::AllFalse(d, walking);) {
    auto left = hn::ShiftRightSame(x, half), right = hn::And(x, mask);
    for (const std::uint64_t key : feistel.keys) {
      const auto next = hn::Xor(left, hn::And(mix(hn::Add(right, hn::Set(d, key))), mask));
      left = right;
      right = next;
    }
    x = hn::IfThenElse(walking, hn::Or(hn::ShiftLeftSame(left, half), right), x);
    walking = hn::Gt(x, last);  // those that have arrived stay
  }
  return x;
}

void Permute(const draws::Feistel& feistel, std::uint64_t* HWY_RESTRICT values, std::size_t count) {
  const D d;
  const std::size_t n = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + n <= count; i += n) hn::StoreU(permute_vector(feistel, hn::LoadU(d, values + i)), d, values + i);
  if (i == count) return;
  HWY_ALIGN std::uint64_t rest[HWY_MAX_BYTES / sizeof(std::uint64_t)] = {};
  std::copy(values + i, values + count, rest);
  hn::Store(permute_vector(feistel, hn::Load(d, rest)), d, rest);
  std::copy(rest, rest + (count - i), values + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace::server::sampler
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::server::sampler {

HWY_EXPORT(Permute);

void permute(const draws::Feistel& feistel, std::span<std::uint64_t> values) {
  HWY_DYNAMIC_DISPATCH(Permute)(feistel, values.data(), values.size());
}

}  // namespace headrace::server::sampler
#endif
