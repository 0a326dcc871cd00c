// From device memory to shared memory: the part of a picture that a tile reads, in 16-byte vectors.
#pragma once

#include <cstdint>

#include "clientlib/gpu/transform/shared.h"
#include "clientlib/gpu/transform/walk.h"

namespace headrace::gpu {

/// Rows `down` and columns `across` of a task's picture, as they will lie at `at`.
template <int kChannels>
HEADRACE_HD RowsView source_view(const TransformJob& job, const RowTask& task, Span across, Span down,
                                 std::uint8_t* at) {
  const std::uint64_t first =
      task.offset + (static_cast<std::uint64_t>(down.begin) * static_cast<std::uint32_t>(task.width) +
                     static_cast<std::uint32_t>(across.begin)) *
                        kChannels;
  return {at, source_pitch((across.end - across.begin) * kChannels),
          static_cast<std::uint32_t>((reinterpret_cast<std::uintptr_t>(job.pixels) + first) & 15U),
          static_cast<std::uint32_t>(task.width) * kChannels};
}

/// A vector at `from`, which is aligned; of one that reaches beyond the batch, the bytes within it.
HEADRACE_HD inline Vector16 load_vector(const TransformJob& job, const std::uint8_t* from) {
  if (from >= job.pixels && from + 16 <= job.pixels_end) return *reinterpret_cast<const Vector16*>(from);
  Vector16 vector{};
  for (std::int32_t i = 0; i < 16; ++i)
    if (from + i >= job.pixels && from + i < job.pixels_end)
      vector.words[i / 4] |= static_cast<std::uint32_t>(from[i]) << (i % 4 * 8);
  return vector;
}

template <int kChannels>
HEADRACE_HD void load_source(std::int32_t thread, const TransformJob& job, const RowTask& task, Span across,
                             Span down, std::uint8_t* at) {
  const RowsView view = source_view<kChannels>(job, task, across, down, at);
  const std::int32_t bytes = (across.end - across.begin) * kChannels;
  const std::uint8_t* const origin =
      job.pixels + task.offset +
      (static_cast<std::uint64_t>(down.begin) * static_cast<std::uint32_t>(task.width) +
       static_cast<std::uint32_t>(across.begin)) *
          kChannels;
  constexpr int kTogether = 4;  // loads under way at a time
  Walk walk(thread, kThreads, down.end - down.begin, view.pitch / 16);
  while (walk.more()) {
    Vector16 vectors[kTogether];
    std::int32_t to[kTogether];
    HEADRACE_UNROLL
    for (int i = 0; i < kTogether; ++i) {
      to[i] = -1;
      if (!walk.more()) continue;
      const auto skew =
          static_cast<std::int32_t>((view.begin + static_cast<std::uint32_t>(walk.row) * view.stride) & 15U);
      if (walk.column * 16 < skew + bytes) {
        vectors[i] = load_vector(
            job, origin + static_cast<std::uint64_t>(walk.row) * view.stride - skew + walk.column * 16);
        to[i] = walk.row * view.pitch + walk.column * 16;
      }
      walk.next();
    }
    HEADRACE_UNROLL
    for (int i = 0; i < kTogether; ++i)
      if (to[i] >= 0) *reinterpret_cast<Vector16*>(at + to[i]) = vectors[i];
  }
}

}  // namespace headrace::gpu
