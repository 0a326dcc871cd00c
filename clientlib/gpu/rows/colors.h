// The color steps of a row (PixelStep), applied to a few pixels at a time.
#pragma once

#include <cstdint>

#include "clientlib/gpu/rows/job.h"
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

/// Replaces each pixel `p` by change(p).
template <int kCount, class Change>
HEADRACE_HD void change_each(pixels::Rgb (&run)[kCount], const Change& change) {
  HEADRACE_UNROLL
  for (int i = 0; i < kCount; ++i) run[i] = change(run[i]);
}

/// Applies one step. `mean`: the gray that a contrast change blends with. Unknown kinds change nothing.
template <int kCount>
HEADRACE_HD void change_pixels(const PixelStep& step, std::uint8_t mean, pixels::Rgb (&run)[kCount]) {
  using pixels::Rgb;
  const float factor = step.factor;
  const auto blended = [factor](std::uint8_t with, Rgb p) -> Rgb {
    return {pixels::blend(with, p.r, factor), pixels::blend(with, p.g, factor),
            pixels::blend(with, p.b, factor)};
  };
  switch (step.kind) {
    case PixelStep::Kind::kBrightness:
      return change_each(run, [&](Rgb p) { return blended(0, p); });
    case PixelStep::Kind::kContrast:
      return change_each(run, [&](Rgb p) { return blended(mean, p); });
    case PixelStep::Kind::kSaturation:
      return change_each(run, [&](Rgb p) { return blended(pixels::gray_of(p.r, p.g, p.b), p); });
    case PixelStep::Kind::kHue:
      return change_each(run, [&](Rgb p) { return pixels::shift_hue(p, step.shift); });
    case PixelStep::Kind::kGray:
      return change_each(run, [](Rgb p) -> Rgb {
        const std::uint8_t gray = pixels::gray_of(p.r, p.g, p.b);
        return {gray, gray, gray};
      });
    case PixelStep::Kind::kLuma:
      return change_each(run, [](Rgb p) -> Rgb {
        const std::uint8_t luma = pixels::luma_of(p.r, p.g, p.b);
        return {luma, luma, luma};
      });
  }
}

/// Applies the first `count` steps.
template <int kCount>
HEADRACE_HD void change_pixels(const PixelSteps& steps, std::int32_t count, pixels::Rgb (&run)[kCount]) {
  HEADRACE_ROLLED
  for (std::int32_t i = 0; i < count; ++i) change_pixels(steps.steps[i], steps.means[i], run);
}

}  // namespace headrace::gpu
