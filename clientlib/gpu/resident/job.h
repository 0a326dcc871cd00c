// What the kernel is given: a batch, or several of one epoch, of a set that lies in device memory. By value:
// a launch copies nothing to the device.
#pragma once

#include <cstdint>

#include "clientlib/draws/permutation.h"
#include "headrace/resident_step.h"

namespace headrace::gpu {

inline constexpr std::int32_t kGatherThreads = 256;  ///< of a block
inline constexpr std::int32_t kGatherSteps = kMaxResidentSteps;
inline constexpr std::int32_t kGatherFields = 16;

/// A ResidentStep that was checked.
struct GatherStep {
  ResidentStep::Kind kind = ResidentStep::Kind::kCrop;
  pixels::PaddingMode padding = pixels::PaddingMode::kConstant;
  std::uint16_t fill[3] = {0, 0, 0};  ///< as pictures are stored
  std::uint32_t stage = 0;
  std::int32_t from_height = 0, from_width = 0;  ///< of what enters it
  std::int32_t top = 0, left = 0, rows = 1, columns = 1;
  double p = 1;
};

/// A field whose rows are only moved.
struct GatherField {
  const std::uint8_t* from = nullptr;  ///< of sample 0
  std::uint64_t to = 0;                ///< of a batch's row 0: bytes from the batch's begin
  std::uint32_t row_bytes = 0;
  std::uint32_t unit = 1;  ///< bytes that are moved at once: 1, 2, 4, 8 or 16; both sides are aligned to it
};

/// Pointers are the device's.
struct GatherJob {
  // of the set
  draws::Feistel order;  ///< of the epoch
  bool shuffled = true;
  std::uint64_t samples = 1, seed = 0, epoch = 0;
  const std::uint8_t* pictures = nullptr;  ///< null: there are none
  const std::uint32_t* values = nullptr;   ///< ValueTable; unused where elements are not changed
  std::int32_t height = 0, width = 0, channels = 0;
  bool interleaved = false;  ///< NHWC of three channels
  std::int32_t stored_bytes = 1;
  std::int32_t out_height = 0, out_width = 0, element_bytes = 1;
  std::int32_t step_count = 0;
  GatherStep steps[kGatherSteps];
  std::int32_t field_count = 0;
  GatherField fields[kGatherFields];
  std::uint64_t image_to = 0;  ///< of a batch's row 0: bytes from the batch's begin

  // of the launch
  std::uint8_t* out = nullptr;         ///< the first batch
  std::uint64_t batch_bytes = 0;       ///< from batch to batch
  std::uint64_t first = 0;             ///< position of the first batch's row 0
  std::uint64_t batch_positions = 0;   ///< from batch to batch
  std::int32_t batches = 1, rows = 0;  ///< rows of each
  std::int32_t parts = 1;              ///< blocks for a row
};

}  // namespace headrace::gpu
