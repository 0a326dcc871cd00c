// How a batch of pictures lies in the ring that are finished on the device: one dense uint8 field, in which
//
//   table     what each row's picture is and what is done to it
//   finished  room for one picture of the output's size per row: what the device does not do ends there
//   pool      all other pictures, wherever one found room: they are of any size
//
// Where a picture lies in the pool depends on which worker came first; what becomes of it does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "headrace/row_steps.h"

namespace headrace::pixels {

struct PictureRow {
  RowSteps steps;
  std::uint64_t offset = 0;  ///< of its pixels, in bytes from the field's begin
  std::int32_t height = 0, width = 0;
};

static_assert(std::is_trivially_copyable_v<PictureRow> && std::is_standard_layout_v<PictureRow>);
static_assert(sizeof(PictureRow) == 144 && offsetof(PictureRow, offset) == 128);

/// The field's parts, in bytes from its begin.
struct PictureRows {
  std::uint64_t rows = 0;            ///< that there is room for
  std::uint64_t row_bytes = 0;       ///< of the field
  std::uint64_t finished_bytes = 0;  ///< of a picture of the output's size

  static constexpr std::uint64_t kAlignment = 64;
  static constexpr std::uint64_t aligned(std::uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  /// A row's part of a field whose pool has `share` bytes per row.
  static constexpr std::uint64_t row_bytes_of(std::uint64_t finished_bytes, std::uint64_t share) {
    return aligned(sizeof(PictureRow)) + aligned(finished_bytes) + aligned(share);
  }

  [[nodiscard]] std::uint64_t bytes() const { return rows * row_bytes; }
  [[nodiscard]] std::uint64_t finished(std::uint64_t row) const {
    return aligned(rows * sizeof(PictureRow)) + row * aligned(finished_bytes);
  }
  [[nodiscard]] std::uint64_t pool() const { return finished(rows); }
};

}  // namespace headrace::pixels
