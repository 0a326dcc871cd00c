// Where a block keeps what in its shared memory.
#pragma once

#include <cstdint>

#include "clientlib/gpu/transform/axis.h"

namespace headrace::gpu {

inline constexpr std::int32_t kValueEntries = 3 * 256;
/// A thread makes one column of so many rows in a horizontal pass; so rows that it writes to come in groups.
inline constexpr std::int32_t kRowGroup = 8;

/// At the begin of a block's shared memory; tables and pixels follow (SharedPlan).
struct SharedHead {
  RowTask task;
  std::uint8_t means[pixels::kMaxPixelSteps];  ///< of each contrast: what it blends with
  union {
    std::uint32_t values[kValueEntries];
    std::uint32_t grays[kThreads];  ///< a sum for each thread, where the means are what is wanted
  };
};

HEADRACE_HD inline std::int32_t round_up(std::int32_t value, std::int32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Between rows of finished pixels: an odd number of words, so that a column's are in different banks.
HEADRACE_HD inline std::int32_t pixel_pitch(std::int32_t bytes) {
  return ((bytes + 3) / 4 | 1) * 4;
}
/// Between rows of the source: 16-byte vectors as they lie in device memory.
HEADRACE_HD inline std::int32_t source_pitch(std::int32_t bytes) {
  return round_up(bytes + 15, 16);
}

/// A table's ints: two for each output, and its weights.
HEADRACE_HD inline std::int32_t table_bytes(std::int32_t outputs, std::int32_t taps) {
  return outputs * (2 + taps) * 4;
}

HEADRACE_HD inline AxisTable table_at(std::uint8_t* at, std::int32_t outputs, bool taps_together,
                                      std::int32_t taps) {
  auto* const first = reinterpret_cast<std::int32_t*>(at);
  return {first, first + outputs, first + 2 * outputs, taps_together ? taps : 1, taps_together ? 1 : outputs};
}

/// Rows of bytes in shared memory. Those of the source begin where they begin in device memory, modulo 16. An
/// offset, not a pointer to the first row: so the compiler sees that it is shared memory.
struct RowsView {
  std::uint8_t* shared = nullptr;
  std::int32_t offset = 0, pitch = 0;
  std::uint32_t begin = 0, stride = 0;

  [[nodiscard]] HEADRACE_HD std::int32_t row_offset(std::int32_t y) const {
    return offset + y * pitch +
           static_cast<std::int32_t>((begin + static_cast<std::uint32_t>(y) * stride) & 15U);
  }
  [[nodiscard]] HEADRACE_HD std::uint8_t* row(std::int32_t y) const { return shared + row_offset(y); }
};

struct alignas(16) Vector16 {
  std::uint32_t words[4];
};

}  // namespace headrace::gpu
