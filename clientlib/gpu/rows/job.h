// The kernel's input for one batch. It is passed by value, so that a launch needs no copy to the device.
#pragma once

#include <cstdint>

#include "clientlib/draws/permutation.h"
#include "clientlib/pixels/values.h"
#include "headrace/device_image.h"

namespace headrace::gpu {

inline constexpr std::int32_t kRowThreads = 256;  ///< threads of a block
inline constexpr std::int32_t kMaxMovedFields = 16;

/// How a channel's byte becomes an element of the row.
enum class Conversion : std::uint8_t {
  kBytes,           ///< uint8, unchanged
  kTableHalf,       ///< float16 or bfloat16, from a table that each block makes
  kTableFloat32,    ///< float32, from such a table
  kAffineFloat16,   ///< computed with RowJob::affine
  kAffineBFloat16,  ///< computed with RowJob::affine
};

/// scale * (byte / 256) + offset, rounded once, then rounded to the element's type.
struct AffineValue {
  float scale = 1, offset = 0;
};

/// A field whose rows are copied unchanged from the dataset.
struct MovedField {
  const std::uint8_t* from = nullptr;  ///< the row of sample 0
  std::uint64_t to = 0;                ///< the batch's row 0: bytes from the start of the batch
  std::uint32_t row_bytes = 0;
  std::uint32_t unit = 1;  ///< bytes copied at once: 1, 2, 4, 8 or 16; source and target are aligned to it
};

/// All pointers are device pointers.
struct RowJob {
  // Source images: one for each row (`device: gpu`), or one for each sample (`residence: gpu`).
  std::uint8_t* pictures = nullptr;  ///< the first source image; null: the batch has no image field
  std::uint64_t picture_step = 0;    ///< bytes from one source image to the next
  std::uint64_t steps_offset = 0;  ///< bytes from a source image to its RowSteps; 0: the kernel draws itself
  std::int32_t height = 0, width = 0, channels = 0;
  std::int32_t move_count = 0;
  Move moves[kMaxMoves];        ///< geometric transforms
  bool changes_colors = false;  ///< rows may have color steps
  std::int32_t contrasts = 0;   ///< the largest number of contrast changes in a row

  // Rows.
  std::uint8_t* out = nullptr;  ///< the batch
  std::uint64_t image_to = 0;   ///< the image field's row 0: bytes from the start of the batch
  std::int32_t rows = 0;
  std::int32_t out_height = 0, out_width = 0, out_channels = 0;
  bool interleaved = false;                              ///< NHWC with three channels
  std::int32_t element_bytes = 1;                        ///< 1, 2 or 4
  pixels::ValueType type = pixels::ValueType::kFloat32;  ///< of elements larger than one byte
  pixels::Normalization how[3];
  Conversion conversion = Conversion::kBytes;
  AffineValue affine[3];  ///< for each channel; gives exactly the values of `how`
  /// Each channel's erasing value: an element's bits, or (kAffine...) a float's, which is rounded.
  std::uint32_t erased[3] = {0, 0, 0};
  std::int32_t blocks_at_once = 1;  ///< Device::blocks_at_once()
  std::int32_t parts = 1;           ///< blocks for each row; row_parts()

  // A launch may compute several batches of one size.
  std::int32_t batch_rows = 0;        ///< rows of a batch; 0: all rows are of one batch
  std::uint64_t batch_bytes = 0;      ///< from the start of a batch to the next in memory
  std::uint64_t batch_positions = 0;  ///< from the position of a batch's row 0 to that of the next batch

  // A dataset in GPU memory.
  draws::Feistel order;  ///< of the epoch
  bool shuffled = false;
  std::uint64_t samples = 0;  ///< 0: there is no dataset, source images come with the batch
  std::uint64_t seed = 0, epoch = 0;
  std::uint64_t first = 0;  ///< position of the first batch's row 0
  std::int32_t field_count = 0;
  MovedField fields[kMaxMovedFields];
};

}  // namespace headrace::gpu
