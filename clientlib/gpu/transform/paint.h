// Colours of finished pixels, in shared memory.
#pragma once

#include <cstdint>

#include "clientlib/gpu/transform/shared.h"
#include "clientlib/gpu/transform/walk.h"
#include "clientlib/pixels/colours.h"

namespace headrace::gpu {

/// How many of a row's steps come before its contrast number `contrast`.
HEADRACE_HD inline std::int32_t steps_before(const pixels::RowSteps& steps, std::int32_t contrast) {
  std::int32_t i = 0;
  for (; i < steps.op_count; ++i)
    if (steps.ops[i].kind == pixels::PixelStepKind::kContrast && contrast-- == 0) break;
  return i;
}

/// The mean gray of `pixels` pixels, rounded, halves up: as PIL's int(mean + 0.5).
HEADRACE_HD inline std::uint8_t mean_gray(std::uint64_t sum, std::uint64_t pixels) {
  return static_cast<std::uint8_t>((2 * sum + pixels) / (2 * pixels));
}

/// mean: what a contrast blends with.
HEADRACE_HD inline pixels::Rgb painted(const pixels::PixelStep& step, pixels::Rgb p, std::uint8_t mean) {
  using Kind = pixels::PixelStepKind;
  std::uint8_t with = 0;
  switch (step.kind) {
    case Kind::kHue:
      return pixels::shift_hue(p, step.shift);
    case Kind::kGray:
    case Kind::kSaturation:
      with = pixels::gray_of(p.r, p.g, p.b);
      break;
    case Kind::kLuma:
      with = pixels::luma_of(p.r, p.g, p.b);
      break;
    case Kind::kContrast:
      with = mean;
      break;
    default:
      break;
  }
  if (step.kind == Kind::kGray || step.kind == Kind::kLuma) return {with, with, with};
  return {pixels::blend(with, p.r, step.factor), pixels::blend(with, p.g, step.factor),
          pixels::blend(with, p.b, step.factor)};
}

/// The first `count` steps. kSum: nothing is written; the result's grays are added to the thread's sum.
template <int kChannels, bool kSum>
HEADRACE_HD void paint(std::int32_t thread, SharedHead& head, std::int32_t count, const RowsView& tile,
                       std::int32_t rows, std::int32_t columns) {
  const pixels::RowSteps& steps = head.task.steps;
  std::uint32_t grays = 0;
  for (Walk walk(thread, kThreads, rows, columns); walk.more(); walk.next()) {
    std::uint8_t* const at = tile.row(walk.row) + walk.column * kChannels;
    pixels::Rgb p{at[0], at[0], at[0]};
    if (kChannels == 3) p = {at[0], at[1], at[2]};
    for (std::int32_t i = 0; i < count; ++i) p = painted(steps.ops[i], p, head.means[i]);
    if (kSum) {
      grays += pixels::gray_of(p.r, p.g, p.b);
      continue;
    }
    at[0] = p.r;
    if (kChannels == 3) {
      at[1] = p.g;
      at[2] = p.b;
    }
  }
  if (kSum) head.grays[thread] += grays;
}

}  // namespace headrace::gpu
