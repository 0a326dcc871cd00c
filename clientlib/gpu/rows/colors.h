// The color steps of a row (PixelStep), applied to a few pixels at a time. They give the bytes of libImaging,
// which computes in single precision; dividing by 256 is exact, so all roundings are the same as
// libImaging's.
#pragma once

#include <cmath>
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

/// pixels::gray_of(), as red plus a weighted sum of the differences from red, because the weights' sum is 1.
/// Before add_down() rounds, every product and sum is a multiple of 2^-24 between -1 and 1, and so exact.
HEADRACE_HD inline float gray_of(const LiftedRgb& p) {
  constexpr float kG = 38470.0F / 65536, kB = 7471.0F / 65536;
  return add_down(p.r, multiply_add(p.b - p.r, kB, multiply_add(p.g - p.r, kG, kByteStep / 2)));
}

/// pixels::blend() of 0 and a channel. The fused multiply-add gives factor * byte / 256, rounded once.
HEADRACE_HD inline float brightened(float channel, float factor) {
  return lift_clamped(multiply_add(channel, factor, -kLift * factor));
}

/// pixels::blend().
HEADRACE_HD inline float blended(float with, float channel, float factor) {
  return lift_clamped(fraction_of(with) + factor * (channel - with));
}

/// a / b, correctly rounded: one Newton step on a * inverse, with an exact remainder. REQUIRES: `inverse` has
/// a relative error below 2^-21; a, b and a / b are normal or 0 (0 / 0 gives NaN). Before it is rounded, the
/// result is within 2^-42 of the quotient (relative), and no quotient of two bytes, and no sixth (shift_hue),
/// is that close to the midpoint of two floats.
HEADRACE_HD inline float quotient(float a, float b, float inverse) {
  const float about = a * inverse;
  return multiply_add(multiply_add(-about, b, a), inverse, about);
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

inline constexpr float kWhole = 8'388'608;  ///< 2^23: from here on a float's low bits are an integer
/// The integer part of 255 x, plus kWhole. REQUIRES: 0 <= x <= 1.
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
///   RGB to HSV: computes libImaging's own quotients. That of the smallest channel is 1, so h takes one
/// subtraction, rounded once.
///   HSV to RGB: each channel is V reduced by a fraction between 0 and S, which grows with the distance
/// from H to the channel's own hue. No exact value lies midway between two bytes, so single precision rounds
/// to the same byte.
HEADRACE_HD inline LiftedRgb shift_hue(const LiftedRgb& p, std::uint8_t shift) {
  const float larger = max_of(p.r, p.g), smaller = min_of(p.r, p.g);
  const float most = max_of(larger, p.b), least = min_of(smaller, p.b);
  const float middle = max_of(smaller, min_of(larger, p.b));
  const float v = fraction_of(most), range = most - least;
  // A divisor of 0 has a dividend of 0: saturated() turns the NaN into 0. Then s is 0, and h does not matter.
  const float s = times_byte(saturated(quotient(range, v))) - kWhole;
  const float part = saturated(quotient(most - middle, range));

  // H in sixths of a turn. If H rises with the middle channel (direction 1), it is base + 1 - part; if it
  // falls (direction -1), base - 1 + part. If two channels are equal, both are the same.
  const bool rg = p.r >= p.g, gb = p.g >= p.b, rb = p.r >= p.b;
  const float base = rg && rb ? 0.0F : gb && !rg ? 2.0F : 4.0F;
  const float direction = (rg != gb) != rb ? 1.0F : -1.0F;
  const float sixths = multiply_add(-direction, part, base + direction);
  float turns = quotient(sixths, 6.0F, 1.0F / 6);
  if (sixths < 0.0F) turns = turns + 1.0F;
  const std::uint32_t h = (pixels::bits_of(times_byte(turns)) + shift) & 255U;

  // 6 h / 256, where 255 / 256 is a sixth of a turn.
  constexpr float kSixth = 255 * kByteStep;
  const float hue =
      multiply_add(pixels::float_of(pixels::bits_of(kWhole) | h), 6 * kByteStep, -6 * kByteStep * kWhole);
  // v (1 - s / 255 (1 - n / 255)) with n = 256 near: n = 0 gives the smallest channel, n = 255 the largest.
  const float rest = multiply_add(s, -255.0F, 65025.0F), weight = s * 256.0F;
  const auto channel = [&](float near) {
    return multiply_add(v * multiply_add(weight, clamped(near), rest), 1.0F / 65025, kLift);
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
