// What the kernel is given: rows that have been checked, each with the tile that fits into shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/row_steps.h"

namespace headrace::gpu {

inline constexpr std::int32_t kThreads = 256;  ///< of a block
/// Shared memory of a block, at most: three blocks on a multiprocessor of sm_90, two of sm_80.
inline constexpr std::size_t kSharedBytes = std::size_t{72} * 1024;

/// Where things lie in a block's shared memory, in bytes from its begin.
struct SharedPlan {
  std::int32_t columns = 0, rows = 0;  ///< tables of the two axes
  std::int32_t picture = 0;            ///< a chunk of the source, then the finished tile
  std::int32_t middle = 0;             ///< after the first pass
  std::int32_t size = 0;
};

/// One row of the batch. Tiles are parts of its window: full width where that fits.
struct RowTask {
  pixels::RowSteps steps;
  std::uint64_t offset = 0;
  std::int32_t height = 0, width = 0;
  std::int32_t tile_rows = 0, tile_columns = 0;
  /// Of a tile's source, what is in shared memory at a time: rows, or (vertical pass first) columns, a
  /// multiple of 4. Only of pictures that are made much smaller it is less than all.
  std::int32_t chunk = 0;
  std::int32_t column_taps = 0, row_taps = 0;  ///< most inputs of an output
  SharedPlan shared;
  std::int32_t contrasts = 0;  ///< of the steps
};

/// One launch. Pointers are the device's.
struct TransformJob {
  const std::uint8_t* pixels = nullptr;
  const std::uint8_t* pixels_end = nullptr;
  const RowTask* tasks = nullptr;
  const std::uint32_t* values = nullptr;  ///< ValueTable; unused where elements are bytes
  /// rows * contrasts sums of grays: what contrast number i of a row blends with. Zeros at first.
  unsigned long long* sums = nullptr;
  std::uint8_t* output = nullptr;
  std::int32_t rows = 0, height = 0, width = 0;
  std::int32_t source_channels = 3;
  std::int32_t channels = 3;       ///< of the output
  std::int32_t element_bytes = 1;  ///< 1, 2 or 4
  bool interleaved = false;
  std::int32_t contrasts = 0;  ///< the most that a row has
};

}  // namespace headrace::gpu
