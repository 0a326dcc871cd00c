// The color steps of a row (PixelStep), applied to a few pixels at a time. They give the bytes of libImaging,
// which computes in single precision; a factor of 256 more or less does not change how a float is rounded.
#pragma once

#include <cstdint>

#include "clientlib/gpu/rows/job.h"
#include "clientlib/gpu/rows/lifted.h"
#include "clientlib/pixels/colors.h"

namespace headrace::gpu {

/// A row's color steps in shared memory, limited to safe values.
struct PixelSteps {
  PixelStep steps[kMaxPixelSteps];
  std::uint8_t means[kMaxPixelSteps];  ///< for each contrast change: the mean gray that it blends with
  std::int32_t count;
};

/// The mean gray of `pixels` pixels, rounded half up, as PIL's int(mean + 0.5).
HEADRACE_HD inline std::uint8_t mean_gray(std::uint64_t sum, std::uint64_t pixels) {
  return static_cast<std::uint8_t>((2 * sum + pixels) / (2 * pixels));
}

/// The number of steps before contrast change number `contrast`. -1: there is no such contrast change.
HEADRACE_HD inline std::int32_t steps_before(const PixelSteps& steps, std::int32_t contrast) {
  for (std::int32_t i = 0; i < steps.count; ++i)
    if (steps.steps[i].kind == PixelStep::Kind::kContrast && contrast-- == 0) return i;
  return -1;
}

/// pixels::gray_of(). Every product and sum is a multiple of 2^-24 below 1, so none is rounded.
HEADRACE_HD inline float gray_of(const LiftedRgb& p) {
  constexpr float kR = 19595.0F / 65536, kG = 38470.0F / 65536, kB = 7471.0F / 65536;
  const float gray = fused(plain_of(p.r), kR, kOneByte / 2);
  return lift_down(fused(plain_of(p.b), kB, fused(plain_of(p.g), kG, gray)));
}

/// pixels::blend() of a channel with 0. The fused product and difference is factor * byte, rounded once.
HEADRACE_HD inline float brightened(float channel, float factor) {
  return lift_clamped(fused(channel, factor, -kLift * factor));
}

/// pixels::blend().
HEADRACE_HD inline float blended(float with, float channel, float factor) {
  return lift_clamped(plain_of(with) + factor * (channel - with));
}

/// a / b in single precision, for an `inverse` of b with a relative error below 2^-21. a, b and the quotient
/// must be normal numbers or 0. The remainder is exact, so the value that is rounded differs from the exact
/// quotient by less than 2^-42 of it. For bytes and for sixths (shift_hue) no quotient is that near to the
/// middle between two floats.
HEADRACE_HD inline float quotient(float a, float b, float inverse) {
  const float about = a * inverse;
  return fused(fused(-about, b, a), inverse, about);
}
HEADRACE_HD inline float quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  // The compiler's division also checks for special cases, and these checks cost more than the division.
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return quotient(a, b, inverse);
#else
  return a / b;
#endif
}

/// The integer part of 255 x, plus kWhole. REQUIRES: 0 <= x <= 1.
inline constexpr float kWhole = 8'388'608;  ///< 2^23: from here on a float's low bits are an integer
HEADRACE_HD inline float times_byte(float x) {
#ifdef __CUDA_ARCH__
  return __fmaf_rz(x, 255.0F, kWhole);
#else
  // The product in single precision may be rounded up to an integer above 255 x; the comparison with 256 x,
  // which is exact, detects that.
  const auto whole = static_cast<float>(static_cast<std::int32_t>(x * 255.0F));
  return kWhole + (x * 256.0F - whole < x ? whole - 1 : whole);
#endif
}

/// libImaging's rgb2hsv and hsv2rgb (Convert.c) with `shift` added to H, modulo 256. They mix float and
/// double; this gives the same bytes in single precision, without branches.
///   RGB to HSV: the quotients are libImaging's own. The quotient of the smallest channel is 1, so h is a
/// single difference, rounded once.
///   HSV to RGB: each channel is V, or smaller by at most S, depending on how far H is from the channel's own
/// hue. In exact arithmetic no rounded value is a half.
HEADRACE_HD inline LiftedRgb shift_hue(const LiftedRgb& p, std::uint8_t shift) {
  const float larger = greater(p.r, p.g), smaller = lesser(p.r, p.g);
  const float most = greater(larger, p.b), least = lesser(smaller, p.b);
  const float middle = greater(smaller, lesser(larger, p.b));
  const float v = plain_of(most), range = most - least;
  // If a divisor is 0, so is its dividend. Then s is 0, and h does not matter.
  const float s = times_byte(saturated(quotient(range, v))) - kWhole;
  const float part = saturated(quotient(most - middle, range));

  // H in sixths of a turn. Where it falls with the middle channel, it is base + 1 - part, else
  // base - 1 + part. If two channels are equal, both cases give the same.
  const bool rg = p.r >= p.g, gb = p.g >= p.b, rb = p.r >= p.b;
  const float base = rg && rb ? 0.0F : gb && !rg ? 2.0F : 4.0F;
  const float falls = (rg != gb) != rb ? 1.0F : -1.0F;
  const float sixths = fused(-falls, part, base + falls);
  float turns = quotient(sixths, 6.0F, 1.0F / 6);
  if (sixths < 0.0F) turns = turns + 1.0F;
  const std::uint32_t h = (pixels::bits_of(times_byte(turns)) + shift) & 255U;

  // 6 h / 256, where 255 / 256 is a sixth of a turn.
  constexpr float kSixth = 255 * kOneByte;
  const float hue =
      fused(pixels::float_of(pixels::bits_of(kWhole) | h), 6 * kOneByte, -6 * kOneByte * kWhole);
  // v (1 - s (1 - near)), with s and near of 255: 0 for near gives the smallest channel, 255 the largest one.
  const float rest = fused(s, -255.0F, 65025.0F), weight = s * 256.0F;
  const auto channel = [&](float near) {
    return fused(v * fused(weight, clamped(near), rest), 1.0F / 65025, kLift);
  };
  return {channel(std::fabs(hue - 3 * kSixth) - kSixth), channel(2 * kSixth - std::fabs(hue - 2 * kSixth)),
          channel(2 * kSixth - std::fabs(hue - 4 * kSixth))};
}

/// Replaces each pixel `p` by change(p).
template <int kCount, class Change>
HEADRACE_HD void change_each(LiftedRgb (&run)[kCount], const Change& change) {
  HEADRACE_UNROLL
  for (int i = 0; i < kCount; ++i) run[i] = change(run[i]);
}

/// Applies one step. `mean`: the gray that a contrast change blends with. Unknown kinds change nothing.
template <int kCount>
HEADRACE_HD void change_pixels(const PixelStep& step, std::uint8_t mean, LiftedRgb (&run)[kCount]) {
  const float factor = step.factor;
  const auto blend = [factor](float with, const LiftedRgb& p) -> LiftedRgb {
    return {blended(with, p.r, factor), blended(with, p.g, factor), blended(with, p.b, factor)};
  };
  switch (step.kind) {
    case PixelStep::Kind::kBrightness:
      return change_each(run, [&](const LiftedRgb& p) -> LiftedRgb {
        return {brightened(p.r, factor), brightened(p.g, factor), brightened(p.b, factor)};
      });
    case PixelStep::Kind::kContrast:
      return change_each(run, [&](const LiftedRgb& p) { return blend(lift(mean), p); });
    case PixelStep::Kind::kSaturation:
      return change_each(run, [&](const LiftedRgb& p) { return blend(gray_of(p), p); });
    case PixelStep::Kind::kHue:
      return change_each(run, [&](const LiftedRgb& p) { return shift_hue(p, step.shift); });
    case PixelStep::Kind::kGray:
      return change_each(run, [](const LiftedRgb& p) -> LiftedRgb {
        const float gray = gray_of(p);
        return {gray, gray, gray};
      });
    case PixelStep::Kind::kLuma:
      return change_each(run, [](const LiftedRgb& p) -> LiftedRgb {
        const float luma = lift(pixels::luma_of(byte_of(p.r), byte_of(p.g), byte_of(p.b)));
        return {luma, luma, luma};
      });
  }
}

/// Applies the first `count` steps.
template <int kCount>
HEADRACE_HD void change_pixels(const PixelSteps& steps, std::int32_t count, LiftedRgb (&run)[kCount]) {
  HEADRACE_ROLLED
  for (std::int32_t i = 0; i < count; ++i) change_pixels(steps.steps[i], steps.means[i], run);
}

}  // namespace headrace::gpu
