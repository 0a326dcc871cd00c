// The source of a row's pixels. Geometric transforms (Move) treat rows and columns independently, and a
// 90-degree rotation swaps them. So each output row and column can be traced back to its source on its own,
// and two short tables describe the whole image.
#pragma once

#include <cstdint>

#include "clientlib/gpu/rows/job.h"
#include "clientlib/pixels/padding.h"

namespace headrace::gpu {

/// The random draws of a geometric transform.
struct DrawnMove {
  std::int32_t top = 0, left = 0;  ///< crop: its offset in the image; negative in the padding
  std::int32_t turns = 0;          ///< rotation: times 90 degrees counter-clockwise; flip: 1 if it is applied
};

HEADRACE_HD inline DrawnMove draw_move(const Move& move, std::uint64_t seed, std::uint64_t epoch,
                                       std::uint64_t position) {
  draws::Draws random(seed, epoch, position, move.stage);
  DrawnMove drawn;
  switch (move.kind) {
    case Move::Kind::kCrop:
      drawn.top = move.top + static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(move.rows)));
      drawn.left =
          move.left + static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(move.columns)));
      break;
    case Move::Kind::kTurn:
      drawn.turns = static_cast<std::int32_t>(random.below(4));
      break;
    default:
      drawn.turns = random.bernoulli(move.p) ? 1 : 0;
  }
  return drawn;
}

/// The source of an output row or column. `at` < 0: it has the fill color of crop number -1 - at.
struct Traced {
  std::int32_t at = 0;
  bool column = false;  ///< the source is a column of the source image; else a row
};

HEADRACE_HD inline Traced trace(const RowJob& job, const DrawnMove* drawn, Traced line) {
  for (std::int32_t i = job.move_count - 1; i >= 0; --i) {
    const Move& move = job.moves[i];
    const std::int32_t height = i > 0 ? job.moves[i - 1].height : job.height;
    const std::int32_t width = i > 0 ? job.moves[i - 1].width : job.width;
    const std::int32_t length = line.column ? width : height;
    switch (move.kind) {
      case Move::Kind::kCrop:
        line.at = pixels::padded_index(line.at + (line.column ? drawn[i].left : drawn[i].top), length,
                                       move.padding);
        if (line.at < 0) {
          line.at = -1 - i;
          return line;
        }
        break;
      case Move::Kind::kHorizontalFlip:
        if (line.column && drawn[i].turns != 0) line.at = length - 1 - line.at;
        break;
      case Move::Kind::kVerticalFlip:
        if (!line.column && drawn[i].turns != 0) line.at = length - 1 - line.at;
        break;
      case Move::Kind::kTurn:
        // numpy.rot90: out[i][j] = in[j][side - 1 - i]; images are square here.
        for (std::int32_t turn = 0; turn < (drawn[i].turns & 3); ++turn) {
          if (!line.column) line.at = length - 1 - line.at;
          line.column = !line.column;
        }
    }
  }
  return line;
}

}  // namespace headrace::gpu
