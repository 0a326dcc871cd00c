// Where a row's pixels come from: what is drawn for its position, and each output row's and column's way back
// through the steps. Steps move rows and columns independently (a turn swaps them), so two short tables say
// it all.
#pragma once

#include <cstdint>

#include "clientlib/gpu/resident/job.h"
#include "clientlib/pixels/padding.h"

namespace headrace::gpu {

/// What was drawn for a step.
struct DrawnStep {
  std::int32_t top = 0, left = 0;  ///< of a crop: its place, padding included
  std::int32_t turns = 0;          ///< quarter turns, counter-clockwise; of a flip: 1 if it is done
};

HEADRACE_HD inline DrawnStep draw_step(const GatherStep& step, std::uint64_t seed, std::uint64_t epoch,
                                       std::uint64_t position) {
  draws::Draws random(seed, epoch, position, step.stage);
  DrawnStep drawn;
  switch (step.kind) {
    case ResidentStep::Kind::kCrop:
      drawn.top = step.top + static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(step.rows)));
      drawn.left =
          step.left + static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(step.columns)));
      break;
    case ResidentStep::Kind::kTurn:
      drawn.turns = static_cast<std::int32_t>(random.below(4));
      break;
    default:
      drawn.turns = random.bernoulli(step.p) ? 1 : 0;
  }
  return drawn;
}

/// An output row's or column's source. `at` < 0: there is only fill, that of step -1 - at.
struct Traced {
  std::int32_t at = 0;
  bool column = false;  ///< of the picture; else a row
};

HEADRACE_HD inline Traced trace(const GatherJob& job, const DrawnStep* drawn, Traced line) {
  for (std::int32_t i = job.step_count - 1; i >= 0; --i) {
    const GatherStep& step = job.steps[i];
    const std::int32_t length = line.column ? step.from_width : step.from_height;
    switch (step.kind) {
      case ResidentStep::Kind::kCrop:
        line.at = pixels::padded_index(line.at + (line.column ? drawn[i].left : drawn[i].top), length,
                                       step.padding);
        if (line.at < 0) {
          line.at = -1 - i;
          return line;
        }
        break;
      case ResidentStep::Kind::kHorizontalFlip:
        if (line.column && drawn[i].turns != 0) line.at = length - 1 - line.at;
        break;
      case ResidentStep::Kind::kVerticalFlip:
        if (!line.column && drawn[i].turns != 0) line.at = length - 1 - line.at;
        break;
      case ResidentStep::Kind::kTurn:
        // numpy.rot90: out[i][j] = in[j][side - 1 - i]; pictures are square here.
        for (std::int32_t turn = 0; turn < drawn[i].turns; ++turn) {
          if (!line.column) line.at = length - 1 - line.at;
          line.column = !line.column;
        }
    }
  }
  return line;
}

}  // namespace headrace::gpu
