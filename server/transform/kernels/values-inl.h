// Converts bytes to values, for the kernels: included once for each instruction set, after
// <hwy/foreach_target.h>.
#if defined(HEADRACE_TRANSFORM_VALUES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADRACE_TRANSFORM_VALUES_INL_H
#undef HEADRACE_TRANSFORM_VALUES_INL_H
#else
#define HEADRACE_TRANSFORM_VALUES_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace headrace::server::transform {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

namespace hn = hwy::HWY_NAMESPACE;

using D8 = hn::FixedTag<std::uint8_t, 16>;
using DInt = hn::CappedTag<std::int32_t, 16>;
using DFloat = hn::CappedTag<float, 16>;
using DBytes = hn::Rebind<std::uint8_t, DInt>;

// value / divisor: by division, or by multiplication and one corrected remainder, which with fused
// multiply-add gives the same result for almost every divisor. make_pixel_format tries all 256 bytes before
// it chooses the second.
template <bool kDivide>
HWY_INLINE hn::Vec<DFloat> quotient(hn::Vec<DFloat> value, hn::Vec<DFloat> divisor,
                                    hn::Vec<DFloat> reciprocal) {
  if constexpr (kDivide) return hn::Div(value, divisor);
  const auto guess = hn::Mul(value, reciprocal);
  return hn::MulAdd(hn::NegMulAdd(guess, divisor, value), reciprocal, guess);
}

struct Channel {
  hn::Vec<DFloat> mean, std, reciprocal;
};

template <bool kDivide>
HWY_INLINE hn::Vec<DFloat> value_of(const std::uint8_t* HWY_RESTRICT from, const Channel& channel,
                                    bool normalized) {
  const DFloat d;
  const auto byte = hn::ConvertTo(d, hn::PromoteTo(DInt(), hn::LoadU(DBytes(), from)));
  auto value = quotient<kDivide>(byte, hn::Set(d, 255.0F), hn::Set(d, 1.0F / 255.0F));
  if (normalized) value = quotient<kDivide>(hn::Sub(value, channel.mean), channel.std, channel.reciprocal);
  return value;
}

// One type per dtype: the element, loading elements as a vector of floats, and converting such a vector to
// elements. As in halves.h.
struct AsFloat {
  using Element = float;
  static HWY_INLINE hn::Vec<DFloat> load(const float* from) { return hn::LoadU(DFloat(), from); }
  static HWY_INLINE hn::Vec<DFloat> of(hn::Vec<DFloat> v) { return v; }
};
struct AsHalf {
  using Element = std::uint16_t;
  static HWY_INLINE hn::Vec<DFloat> load(const std::uint16_t* from) {
    const hn::Rebind<hwy::float16_t, DFloat> half;
    return hn::PromoteTo(DFloat(), hn::BitCast(half, hn::LoadU(hn::Rebind<std::uint16_t, DFloat>(), from)));
  }
  static HWY_INLINE auto of(hn::Vec<DFloat> v) {
    const hn::Rebind<hwy::float16_t, DFloat> half;
    return hn::BitCast(hn::Rebind<std::uint16_t, DFloat>(), hn::DemoteTo(half, v));
  }
};
struct AsBFloat {
  using Element = std::uint16_t;
  static HWY_INLINE hn::Vec<DFloat> load(const std::uint16_t* from) {
    const hn::Rebind<std::uint32_t, DFloat> d;
    const auto bits = hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::uint16_t, DFloat>(), from));
    return hn::BitCast(DFloat(), hn::ShiftLeft<16>(bits));
  }
  static HWY_INLINE auto of(hn::Vec<DFloat> v) {
    const hn::Rebind<std::uint32_t, DFloat> d;
    const auto bits = hn::BitCast(d, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7FFF)), odd));
    const auto number = hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(v)), hn::Set(d, 0x7FC0), rounded);
    return hn::DemoteTo(hn::Rebind<std::uint16_t, DFloat>(), hn::BitCast(DInt(), number));
  }
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace headrace::server::transform
HWY_AFTER_NAMESPACE();

#endif
