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

/// `p` after one step. `mean`: the gray that a contrast change blends with. Unknown kinds change nothing.
HEADRACE_HD inline pixels::Rgb changed(const PixelStep& step, pixels::Rgb p, std::uint8_t mean) {
  std::uint8_t with = 0;
  switch (step.kind) {
    case PixelStep::Kind::kBrightness:
      break;
    case PixelStep::Kind::kContrast:
      with = mean;
      break;
    case PixelStep::Kind::kSaturation:
      with = pixels::gray_of(p.r, p.g, p.b);
      break;
    case PixelStep::Kind::kHue:
      return pixels::shift_hue(p, step.shift);
    case PixelStep::Kind::kGray:
      with = pixels::gray_of(p.r, p.g, p.b);
      return {with, with, with};
    case PixelStep::Kind::kLuma:
      with = pixels::luma_of(p.r, p.g, p.b);
      return {with, with, with};
    default:
      return p;
  }
  return {pixels::blend(with, p.r, step.factor), pixels::blend(with, p.g, step.factor),
          pixels::blend(with, p.b, step.factor)};
}

/// Applies the first `count` steps.
template <int kCount>
HEADRACE_HD void change_pixels(const PixelSteps& steps, std::int32_t count, pixels::Rgb (&pixels)[kCount]) {
  HEADRACE_ROLLED
  for (std::int32_t i = 0; i < count; ++i) {
    HEADRACE_UNROLL
    for (int p = 0; p < kCount; ++p) pixels[p] = changed(steps.steps[i], pixels[p], steps.means[i]);
  }
}

}  // namespace headrace::gpu
