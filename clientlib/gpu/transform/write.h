// From finished pixels in shared memory to the output: flips and turns, values, layout, 16 bytes at a time.
#pragma once

#include <cstdint>

#include "clientlib/gpu/transform/shared.h"
#include "clientlib/gpu/transform/walk.h"

namespace headrace::gpu {

/// A tile as lines of the output, both in rising order. A line's pixels are `step` bytes apart, lines
/// `line_step`; steps are negative where the picture is flipped.
struct Lines {
  std::int32_t from = 0;  ///< in shared memory
  std::int32_t line_step = 0, step = 0;
  std::int32_t count = 0, length = 0;
  std::int32_t top = 0, left = 0;  ///< of the first pixel in the output
};

/// Rows [top, top + rows) and columns [left, left + columns) of a task's window.
HEADRACE_HD inline Lines lines_of(const RowTask& task, const RowsView& tile, std::int32_t channels,
                                  std::int32_t top, std::int32_t rows, std::int32_t left,
                                  std::int32_t columns) {
  const pixels::RowSteps& steps = task.steps;
  const bool mirrored = (steps.flags & pixels::RowSteps::kMirrored) != 0;
  const bool flipped = (steps.flags & pixels::RowSteps::kFlipped) != 0;
  const std::int32_t from =
      tile.offset + (flipped ? (rows - 1) * tile.pitch : 0) + (mirrored ? (columns - 1) * channels : 0);
  const std::int32_t down = flipped ? -tile.pitch : tile.pitch, right = mirrored ? -channels : channels;
  const std::int32_t out_top = flipped ? steps.window.height - top - rows : top;
  const std::int32_t out_left = mirrored ? steps.window.width - left - columns : left;
  if ((steps.flags & pixels::RowSteps::kTransposed) != 0)
    return {from, right, down, columns, rows, out_left, out_top};
  return {from, down, right, rows, columns, out_top, out_left};
}

/// Elements of kBytes each that become words.
template <int kBytes>
struct Packed {
  static constexpr int kElements = 16 / kBytes;
  Vector16 vector{};

  HEADRACE_HD void put(int i, std::uint32_t value) {
    vector.words[i * kBytes / 4] |= value << (i * kBytes % 4 * 8);
  }
};

template <int kBytes>
HEADRACE_HD inline void store_element(std::uint8_t* to, std::uint32_t value) {
  if (kBytes == 4) *reinterpret_cast<std::uint32_t*>(to) = value;
  if (kBytes == 2) *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(value);
  if (kBytes == 1) *to = static_cast<std::uint8_t>(value);
}

/// A line of `elements` elements at `to` is cut where 16-byte vectors of memory begin; this is one of the
/// parts. at(i) is element i.
template <int kBytes, class At>
HEADRACE_HD void store_part(std::uint8_t* to, std::int32_t elements, std::int32_t part, At&& at) {
  constexpr int kElements = Packed<kBytes>::kElements;
  const auto skew = static_cast<std::int32_t>(reinterpret_cast<std::uintptr_t>(to) & 15U) / kBytes;
  const std::int32_t first = part * kElements - skew;
  if (first >= 0 && first + kElements <= elements) {
    Packed<kBytes> packed;
    HEADRACE_UNROLL
    for (int i = 0; i < kElements; ++i) packed.put(i, at(first + i));
    *reinterpret_cast<Vector16*>(to + first * kBytes) = packed.vector;
    return;
  }
  const std::int32_t end = first + kElements < elements ? first + kElements : elements;
  HEADRACE_ROLLED
  for (std::int32_t i = first < 0 ? 0 : first; i < end; ++i) store_element<kBytes>(to + i * kBytes, at(i));
}

/// Parts that a line has at most.
template <int kBytes>
HEADRACE_HD std::int32_t parts_of(std::int32_t elements) {
  constexpr int kElements = Packed<kBytes>::kElements;
  return (elements + 2 * (kElements - 1)) / kElements;
}

template <int kBytes>
HEADRACE_HD std::uint32_t value_of(const std::uint32_t* values, std::int32_t channel, std::uint8_t byte) {
  return kBytes == 1 ? byte : values[channel * 256 + byte];
}

template <int kBytes>
HEADRACE_HD void write_planes(std::int32_t thread, const TransformJob& job, const Lines& lines,
                              const std::uint8_t* shared, const std::uint32_t* values, std::uint8_t* out) {
  const std::int64_t plane = static_cast<std::int64_t>(job.height) * job.width * kBytes;
  for (Walk walk(thread, kThreads, lines.count, parts_of<kBytes>(lines.length)); walk.more(); walk.next()) {
    const std::uint8_t* const from = shared + (lines.from + walk.row * lines.line_step);
    std::uint8_t* to =
        out + (static_cast<std::int64_t>(lines.top + walk.row) * job.width + lines.left) * kBytes;
    HEADRACE_ROLLED
    for (std::int32_t channel = 0; channel < job.channels; ++channel, to += plane)
      store_part<kBytes>(to, lines.length, walk.column, [&](std::int32_t i) {
        return value_of<kBytes>(values, channel, from[i * lines.step + channel]);
      });
  }
}

/// Three channels.
template <int kBytes>
HEADRACE_HD void write_interleaved(std::int32_t thread, const TransformJob& job, const Lines& lines,
                                   const std::uint8_t* shared, const std::uint32_t* values,
                                   std::uint8_t* out) {
  Walk walk(thread, kThreads, lines.count, parts_of<kBytes>(3 * lines.length));
  for (; walk.more(); walk.next()) {
    const std::int64_t pixel = static_cast<std::int64_t>(lines.top + walk.row) * job.width + lines.left;
    const std::uint8_t* const from = shared + (lines.from + walk.row * lines.line_step);
    store_part<kBytes>(out + pixel * 3 * kBytes, 3 * lines.length, walk.column, [&](std::int32_t i) {
      const std::int32_t x = i / 3, channel = i - 3 * x;
      return value_of<kBytes>(values, channel, from[x * lines.step + channel]);
    });
  }
}

/// `out`: the row's first byte.
template <int kBytes>
HEADRACE_HD void write_lines(std::int32_t thread, const TransformJob& job, const Lines& lines,
                             const std::uint8_t* shared, const std::uint32_t* values, std::uint8_t* out) {
  if (job.interleaved) return write_interleaved<kBytes>(thread, job, lines, shared, values, out);
  write_planes<kBytes>(thread, job, lines, shared, values, out);
}

HEADRACE_HD inline void write_tile(std::int32_t thread, const TransformJob& job, const Lines& lines,
                                   const std::uint8_t* shared, const std::uint32_t* values,
                                   std::uint8_t* out) {
  if (job.element_bytes == 4) return write_lines<4>(thread, job, lines, shared, values, out);
  if (job.element_bytes == 2) return write_lines<2>(thread, job, lines, shared, values, out);
  write_lines<1>(thread, job, lines, shared, values, out);
}

}  // namespace headrace::gpu
