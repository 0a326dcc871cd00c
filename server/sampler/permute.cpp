#include "server/sampler/permute.h"

#include <algorithm>

// Sizeless vectors cannot be array elements; machines with SVE run the NEON code.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/sampler/permute.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must be included before highway.h.
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

/// Each vector is a chain of dependent multiplications: interleave several to hide their latency.
constexpr std::size_t kSideBySide = 4;

HWY_INLINE void permute_vectors(const draws::Feistel& feistel, std::uint64_t* HWY_RESTRICT values) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  const auto half = static_cast<int>(feistel.half_bits);
  const auto mask = hn::Set(d, (std::uint64_t{1} << feistel.half_bits) - 1);
  const auto last = hn::Set(d, feistel.n - 1);
  hn::Vec<D> x[kSideBySide], left[kSideBySide], right[kSideBySide];
  hn::Mask<D> walking[kSideBySide];
  for (std::size_t v = 0; v < kSideBySide; ++v) {
    x[v] = hn::LoadU(d, values + v * lanes);
    walking[v] = hn::FirstN(d, lanes);
  }
  for (bool all_arrived = false; !all_arrived;) {
    for (std::size_t v = 0; v < kSideBySide; ++v) {
      left[v] = hn::ShiftRightSame(x[v], half);
      right[v] = hn::And(x[v], mask);
    }
    for (const std::uint64_t key : feistel.keys) {
      for (std::size_t v = 0; v < kSideBySide; ++v) {
        const auto next = hn::Xor(left[v], hn::And(mix(hn::Add(right[v], hn::Set(d, key))), mask));
        left[v] = right[v];
        right[v] = next;
      }
    }
    all_arrived = true;
    for (std::size_t v = 0; v < kSideBySide; ++v) {
      x[v] = hn::IfThenElse(walking[v], hn::Or(hn::ShiftLeftSame(left[v], half), right[v]), x[v]);
      walking[v] = hn::Gt(x[v], last);  // those that have arrived stay
      all_arrived &= hn::AllFalse(d, walking[v]);
    }
  }
  for (std::size_t v = 0; v < kSideBySide; ++v) hn::StoreU(x[v], d, values + v * lanes);
}

void Permute(const draws::Feistel& feistel, std::uint64_t* HWY_RESTRICT values, std::size_t count) {
  const std::size_t n = kSideBySide * hn::Lanes(D());
  std::size_t i = 0;
  for (; i + n <= count; i += n) permute_vectors(feistel, values + i);
  if (i == count) return;
  std::uint64_t rest[kSideBySide * HWY_MAX_BYTES / sizeof(std::uint64_t)] = {};
  std::copy(values + i, values + count, rest);
  permute_vectors(feistel, rest);
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
