// Within shared memory: the two passes of a resize, and the plain copy.
#pragma once

#include <cstdint>

#include "clientlib/gpu/transform/shared.h"
#include "clientlib/gpu/transform/walk.h"

namespace headrace::gpu {

/// Output columns of `rows` rows; `in` begins at the picture's column `origin`. A thread makes one column of
/// four rows: weights are read once for them.
template <int kChannels>
HEADRACE_HD void resample_rows(std::int32_t thread, const RowsView& in, std::int32_t rows,
                               std::int32_t origin, const AxisTable& table, std::int32_t columns,
                               const RowsView& out) {
  constexpr int kRows = 4;
  for (Walk walk(thread, kThreads, (rows + kRows - 1) / kRows, columns); walk.more(); walk.next()) {
    const std::int32_t x = walk.column, y = walk.row * kRows;
    const std::int32_t first = (table.first[x] - origin) * kChannels, count = table.count[x];
    const std::uint8_t* from[kRows];
    std::int32_t sums[kRows][kChannels];
    HEADRACE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      from[r] = in.row(y + r < rows ? y + r : rows - 1) + first;
      HEADRACE_UNROLL
      for (int c = 0; c < kChannels; ++c) sums[r][c] = pixels::kHalfWeight;
    }
    const std::int32_t* weights = table.weights + x * table.output_step;
    for (std::int32_t k = 0; k < count; ++k, weights += table.tap_step) {
      const std::int32_t weight = *weights;
      HEADRACE_UNROLL
      for (int r = 0; r < kRows; ++r) HEADRACE_UNROLL
      for (int c = 0; c < kChannels; ++c) sums[r][c] += weight * from[r][k * kChannels + c];
    }
    HEADRACE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (y + r >= rows) continue;
      std::uint8_t* const to = out.row(y + r) + x * kChannels;
      HEADRACE_UNROLL
      for (int c = 0; c < kChannels; ++c) to[c] = pixels::clipped_byte(sums[r][c]);
    }
  }
}

/// Four bytes from any address; reads the words around them.
HEADRACE_HD inline std::uint32_t load_word(const std::uint8_t* from) {
  const auto skew = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from) & 3U);
  const auto* const words = reinterpret_cast<const std::uint32_t*>(from - skew);
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(words[1]) << 32 | words[0]) >> (skew * 8));
}

/// Output rows, `bytes` of each; `in` begins at the picture's row `origin`. A thread makes four bytes.
template <bool kAligned>
HEADRACE_HD void resample_columns(std::int32_t thread, const RowsView& in, std::int32_t bytes,
                                  std::int32_t origin, const AxisTable& table, std::int32_t rows,
                                  const RowsView& out) {
  for (Walk walk(thread, kThreads, rows, (bytes + 3) / 4); walk.more(); walk.next()) {
    const std::int32_t first = table.first[walk.row] - origin, count = table.count[walk.row];
    const std::int32_t* const weights = table.weights + walk.row * table.output_step;
    std::int32_t sums[4] = {pixels::kHalfWeight, pixels::kHalfWeight, pixels::kHalfWeight,
                            pixels::kHalfWeight};
    for (std::int32_t k = 0; k < count; ++k) {
      const std::int32_t weight = weights[k * table.tap_step];
      const std::uint8_t* const from = in.row(first + k) + walk.column * 4;
      const std::uint32_t word = kAligned ? *reinterpret_cast<const std::uint32_t*>(from) : load_word(from);
      HEADRACE_UNROLL
      for (int i = 0; i < 4; ++i) sums[i] += weight * static_cast<std::int32_t>((word >> (8 * i)) & 0xFFU);
    }
    std::uint32_t word = 0;
    HEADRACE_UNROLL
    for (int i = 0; i < 4; ++i) word |= static_cast<std::uint32_t>(pixels::clipped_byte(sums[i])) << (8 * i);
    *reinterpret_cast<std::uint32_t*>(out.row(walk.row) + walk.column * 4) = word;
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
