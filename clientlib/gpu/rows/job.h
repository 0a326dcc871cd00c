// What the kernel is given: one batch. By value, so a launch copies nothing to the device.
#pragma once

#include <cstdint>

#include "clientlib/draws/permutation.h"
#include "clientlib/pixels/values.h"
#include "headrace/device_image.h"

namespace headrace::gpu {

inline constexpr std::int32_t kRowThreads = 256;  ///< of a block
inline constexpr std::int32_t kMaxMovedFields = 16;

/// A field whose rows are only moved.
struct MovedField {
  const std::uint8_t* from = nullptr;  ///< of sample 0
  std::uint64_t to = 0;                ///< of a batch's row 0: bytes from the batch's begin
  std::uint32_t row_bytes = 0;
  std::uint32_t unit = 1;  ///< bytes that are moved at once: 1, 2, 4, 8 or 16; both sides are aligned to it
};

/// Pointers are the device's.
struct RowJob {
  // Pictures: of row i, or of the sample that belongs there.
  std::uint8_t* pictures = nullptr;  ///< the first; null: there are none
  std::uint64_t picture_step = 0;    ///< bytes from picture to picture
  std::uint64_t steps_offset = 0;    ///< bytes from a picture to its RowSteps; 0: draws are made here
  std::int32_t height = 0, width = 0, channels = 0;
  std::int32_t move_count = 0;
  Move moves[kMaxMoves];
  std::int32_t contrasts = 0;  ///< the most of a row

  // Rows.
  std::uint8_t* out = nullptr;  ///< the batch
  std::uint64_t image_to = 0;   ///< of its row 0: bytes from the batch's begin
  std::int32_t rows = 0;
  std::int32_t out_height = 0, out_width = 0, out_channels = 0;
  bool interleaved = false;                              ///< NHWC of three channels
  std::int32_t element_bytes = 1;                        ///< 1, 2 or 4
  pixels::ValueType type = pixels::ValueType::kFloat32;  ///< of elements of more than one byte
  pixels::Normalization how[3];
  std::uint32_t erased[3] = {0, 0, 0};  ///< elements, as they lie in memory
  std::int32_t parts = 1;               ///< blocks for each row

  // A resident set.
  draws::Feistel order;  ///< of the epoch
  bool shuffled = false;
  std::uint64_t samples = 0;  ///< 0: it is none
  std::uint64_t seed = 0, epoch = 0;
  std::uint64_t first = 0;  ///< position of row 0
  std::int32_t field_count = 0;
  MovedField fields[kMaxMovedFields];
};

}  // namespace headrace::gpu
