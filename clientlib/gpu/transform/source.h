// From device memory to shared memory: the part of a picture that a tile reads, in 16-byte vectors.
#pragma once

#include <cstdint>

#include "clientlib/gpu/transform/shared.h"
#include "clientlib/gpu/transform/walk.h"

namespace headrace::gpu {

/// Rows `down` and columns `across` of a task's picture, as they will lie in shared memory.
template <int kChannels>
HEADRACE_HD RowsView source_view(const TransformJob& job, const RowTask& task, Span across, Span down,
                                 std::uint8_t* shared, std::int32_t offset) {
  const std::uint64_t first =
      task.offset + (static_cast<std::uint64_t>(down.begin) * static_cast<std::uint32_t>(task.width) +
                     static_cast<std::uint32_t>(across.begin)) *
                        kChannels;
  return {shared, offset, source_pitch((across.end - across.begin) * kChannels),
          static_cast<std::uint32_t>((reinterpret_cast<std::uintptr_t>(job.pixels) + first) & 15U),
          static_cast<std::uint32_t>(task.width) * kChannels};
}

/// Of a vector that reaches beyond the batch, the bytes within it.
HEADRACE_HD HEADRACE_NOINLINE inline Vector16 load_edge(const std::uint8_t* from, const std::uint8_t* begin,
                                                        const std::uint8_t* end) {
  Vector16 vector{};
  for (std::int32_t i = 0; i < 16; ++i)
    if (from + i >= begin && from + i < end)
      vector.words[i / 4] |= static_cast<std::uint32_t>(from[i]) << (i % 4 * 8);
  return vector;
}

/// Of each row the vectors from `origin`, which is in the first of them, to the pitch's end. kInside: all of
/// them lie within the batch.
template <bool kInside>
HEADRACE_HD void load_rows(std::int32_t thread, const TransformJob& job, const std::uint8_t* origin,
                           std::int32_t rows, const RowsView& view) {
  constexpr int kTogether = 4;  // loads under way at a time
  const std::uint8_t* const first = origin - view.begin;
  Walk walk(thread, kThreads, rows, view.pitch / 16);
  while (walk.more()) {
    Vector16 vectors[kTogether];
    std::int32_t to[kTogether];
    HEADRACE_UNROLL
    for (int i = 0; i < kTogether; ++i) {
      to[i] = walk.more() ? view.offset + walk.row * view.pitch + walk.column * 16 : -1;
      if (to[i] < 0) continue;
      const std::uint32_t at = view.begin + static_cast<std::uint32_t>(walk.row) * view.stride;
      const std::uint8_t* const from = first + (at & ~15U) + walk.column * 16;
      const bool whole = kInside || (from >= job.pixels && from + 16 <= job.pixels_end);
      vectors[i] =
          whole ? *reinterpret_cast<const Vector16*>(from) : load_edge(from, job.pixels, job.pixels_end);
      walk.next();
    }
    HEADRACE_UNROLL
    for (int i = 0; i < kTogether; ++i)
      if (to[i] >= 0) *reinterpret_cast<Vector16*>(view.shared + to[i]) = vectors[i];
  }
}

template <int kChannels>
HEADRACE_HD void load_source(std::int32_t thread, const TransformJob& job, const RowTask& task, Span across,
                             Span down, const RowsView& view) {
  const std::uint8_t* const origin =
      job.pixels + task.offset +
      (static_cast<std::uint64_t>(down.begin) * static_cast<std::uint32_t>(task.width) +
       static_cast<std::uint32_t>(across.begin)) *
          kChannels;
  const std::int32_t rows = down.end - down.begin;
  const std::uint64_t length = static_cast<std::uint64_t>(rows - 1) * view.stride + view.pitch;
  const bool inside =
      origin >= job.pixels + view.begin && length <= static_cast<std::uint64_t>(job.pixels_end - origin);
  if (inside) return load_rows<true>(thread, job, origin, rows, view);
  load_rows<false>(thread, job, origin, rows, view);
}

}  // namespace headrace::gpu
