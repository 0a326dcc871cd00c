#include "server/transform/kernels/mix_kernels.h"

#include <cstdint>
#include <cstring>

#include "clientlib/pixels/halves.h"

// Sizeless vectors cannot be members; machines with SVE run the NEON code.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/transform/kernels/mix_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must be included before highway.h.
#include <hwy/highway.h>

#include "server/transform/kernels/values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headrace::server::transform {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

void MixValues(DType dtype, double lambda, std::size_t count, std::byte* own, const std::byte* partner) {
  scalar::mix_values(dtype, lambda, count, own, partner);
}

#else

// Processes the whole vectors of a line and returns how many values these are; the caller processes the rest.
template <class As>
std::size_t Mix(double lambda, std::size_t count, std::byte* own_bytes, const std::byte* partner_bytes) {
  using Element = typename As::Element;
  const DFloat d;
  const auto share = hn::Set(d, static_cast<float>(lambda)),
             rest = hn::Set(d, static_cast<float>(1 - lambda));
  auto* HWY_RESTRICT own = reinterpret_cast<Element*>(own_bytes);
  const auto* HWY_RESTRICT partner = reinterpret_cast<const Element*>(partner_bytes);
  const hn::Rebind<Element, DFloat> de;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(As::of(hn::Add(hn::Mul(As::load(partner + i), rest), hn::Mul(As::load(own + i), share))), de,
               own + i);
  return i;
}

void MixValues(DType dtype, double lambda, std::size_t count, std::byte* own, const std::byte* partner) {
  std::size_t done = 0;
  if (dtype == DType::kFloat32) {
    done = Mix<AsFloat>(lambda, count, own, partner);
  } else if (dtype == DType::kBFloat16) {
    done = Mix<AsBFloat>(lambda, count, own, partner);
  } else {
    // If Highway has no instruction for it, it does not round to even.
#if HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON
    done = Mix<AsHalf>(lambda, count, own, partner);
#endif
  }
  const std::size_t bytes = done * size_of(dtype);
  scalar::mix_values(dtype, lambda, count - done, own + bytes, partner + bytes);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace headrace::server::transform
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::server::transform {

HWY_EXPORT(MixValues);

void mix_values(DType dtype, double lambda, std::size_t count, std::byte* own, const std::byte* partner) {
  HWY_DYNAMIC_DISPATCH(MixValues)(dtype, lambda, count, own, partner);
}

namespace scalar {
namespace {

template <class Element, class ToFloat, class FromFloat>
void mix(double lambda, std::size_t count, std::byte* own, const std::byte* partner, ToFloat to_float,
         FromFloat from_float) {
  const auto share = static_cast<float>(lambda), rest = static_cast<float>(1 - lambda);
  for (std::size_t i = 0; i < count; ++i) {
    Element a, b;
    std::memcpy(&a, own + i * sizeof a, sizeof a);
    std::memcpy(&b, partner + i * sizeof b, sizeof b);
    const float theirs = to_float(b) * rest, ours = to_float(a) * share;
    a = from_float(theirs + ours);
    std::memcpy(own + i * sizeof a, &a, sizeof a);
  }
}

}  // namespace

void mix_values(DType dtype, double lambda, std::size_t count, std::byte* own, const std::byte* partner) {
  const auto same = [](float value) { return value; };
  switch (dtype) {
    case DType::kFloat16:
      return mix<std::uint16_t>(lambda, count, own, partner, pixels::float_of_half, pixels::half_of);
    case DType::kBFloat16:
      return mix<std::uint16_t>(lambda, count, own, partner, pixels::float_of_bfloat, pixels::bfloat_of);
    default:
      return mix<float>(lambda, count, own, partner, same, same);
  }
}

}  // namespace scalar
}  // namespace headrace::server::transform
#endif
