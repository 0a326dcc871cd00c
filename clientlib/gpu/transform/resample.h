// Within shared memory: the two passes of a resize, and the plain copy.
#pragma once

#include <cstdint>

#include "clientlib/gpu/transform/shared.h"
#include "clientlib/gpu/transform/walk.h"

namespace headrace::gpu {

/// Output columns of `rows` rows; `in` begins at the picture's column `origin`. A thread makes one column of
/// a group of rows: weights are read once for them. Up to the group's end rows are written that mean nothing.
template <int kChannels>
HEADRACE_HD void resample_rows(std::int32_t thread, const RowsView& in, std::int32_t rows,
                               std::int32_t origin, const AxisTable& table, std::int32_t columns,
                               const RowsView& out) {
  for (Walk walk(thread, kThreads, (rows + kRowGroup - 1) / kRowGroup, columns); walk.more(); walk.next()) {
    const std::int32_t x = walk.column, y = walk.row * kRowGroup;
    const std::int32_t first = (table.first[x] - origin) * kChannels, count = table.count[x];
    const std::uint8_t* from[kRowGroup];
    std::int32_t sums[kRowGroup][kChannels];
    HEADRACE_UNROLL
    for (int r = 0; r < kRowGroup; ++r) {
      from[r] = in.row(y + r < rows ? y + r : rows - 1) + first;
      HEADRACE_UNROLL
      for (int c = 0; c < kChannels; ++c) sums[r][c] = pixels::kHalfWeight;
    }
    const std::int32_t* weights = table.weights + x * table.output_step;
    for (std::int32_t k = 0; k < count; ++k, weights += table.tap_step) {
      const std::int32_t weight = *weights;
      HEADRACE_UNROLL
      for (int r = 0; r < kRowGroup; ++r) {
        HEADRACE_UNROLL
        for (int c = 0; c < kChannels; ++c) sums[r][c] += weight * from[r][k * kChannels + c];
      }
    }
    std::uint8_t* const to = out.row(y) + x * kChannels;
    HEADRACE_UNROLL
    for (int r = 0; r < kRowGroup; ++r) {
      HEADRACE_UNROLL
      for (int c = 0; c < kChannels; ++c) to[r * out.pitch + c] = pixels::clipped_byte(sums[r][c]);
    }
  }
}

/// Four bytes from any address; reads the words around them.
HEADRACE_HD inline std::uint32_t load_word(const std::uint8_t* from) {
  const auto skew = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from) & 3U);
  const auto* const words = reinterpret_cast<const std::uint32_t*>(from - skew);
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(words[1]) << 32 | words[0]) >> (skew * 8));
}

/// Output rows, `bytes` of each; `in` begins at the picture's row `origin`. A thread makes some words of a
/// row, a part of the row apart, so that neighbours read neighbouring words.
template <bool kAligned>
HEADRACE_HD void resample_columns(std::int32_t thread, const RowsView& in, std::int32_t bytes,
                                  std::int32_t origin, const AxisTable& table, std::int32_t rows,
                                  const RowsView& out) {
  constexpr int kWords = 3;
  const std::int32_t words = (bytes + 3) / 4, part = (words + kWords - 1) / kWords;
  for (Walk walk(thread, kThreads, rows, part); walk.more(); walk.next()) {
    const std::int32_t first = table.first[walk.row] - origin, count = table.count[walk.row];
    const std::int32_t* const weights = table.weights + walk.row * table.output_step;
    std::int32_t at[kWords];
    std::int32_t sums[kWords][4];
    HEADRACE_UNROLL
    for (int w = 0; w < kWords; ++w) {
      // Beyond the row's end the last word is made again, and not stored.
      const std::int32_t word = walk.column + w * part;
      at[w] = (word < words ? word : words - 1) * 4;
      HEADRACE_UNROLL
      for (int i = 0; i < 4; ++i) sums[w][i] = pixels::kHalfWeight;
    }
    for (std::int32_t k = 0; k < count; ++k) {
      const std::int32_t weight = weights[k * table.tap_step];
      const std::uint8_t* const from = in.row(first + k);
      HEADRACE_UNROLL
      for (int w = 0; w < kWords; ++w) {
        const std::uint32_t word =
            kAligned ? *reinterpret_cast<const std::uint32_t*>(from + at[w]) : load_word(from + at[w]);
        HEADRACE_UNROLL
        for (int i = 0; i < 4; ++i)
          sums[w][i] += weight * static_cast<std::int32_t>((word >> (8 * i)) & 0xFFU);
      }
    }
    std::uint8_t* const to = out.row(walk.row);
    HEADRACE_UNROLL
    for (int w = 0; w < kWords; ++w) {
      if (walk.column + w * part >= words) continue;
      std::uint32_t word = 0;
      HEADRACE_UNROLL
      for (int i = 0; i < 4; ++i)
        word |= static_cast<std::uint32_t>(pixels::clipped_byte(sums[w][i])) << (8 * i);
      *reinterpret_cast<std::uint32_t*>(to + at[w]) = word;
    }
  }
}

/// Pixels as the tables' samples say, or the task's fill.
template <int kChannels>
HEADRACE_HD void copy_pixels(std::int32_t thread, const RowsView& in, std::int32_t left, std::int32_t top,
                             const AxisTable& across, std::int32_t columns, const AxisTable& down,
                             std::int32_t rows, const std::uint8_t* fill, const RowsView& out) {
  for (Walk walk(thread, kThreads, rows, columns); walk.more(); walk.next()) {
    const std::int32_t x = across.first[walk.column], y = down.first[walk.row];
    const std::uint8_t* const from = x < 0 || y < 0 ? fill : in.row(y - top) + (x - left) * kChannels;
    std::uint8_t* const to = out.row(walk.row) + walk.column * kChannels;
    HEADRACE_UNROLL
    for (int c = 0; c < kChannels; ++c) to[c] = from[c];
  }
}

}  // namespace headrace::gpu
