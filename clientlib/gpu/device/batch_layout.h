// The layout of a batch in device memory: the same as in a slot of the ring, so that one copy moves a batch.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "headrace/device_loader.h"

namespace headrace::gpu {

struct BatchLayout {
  struct Field {
    std::size_t values = 0, offsets = 0;  ///< bytes from the start of the batch
    bool finished_here = false;           ///< computed on the device, not copied from the ring
  };
  std::shared_ptr<const std::vector<FieldSpec>> specs;
  std::vector<Field> fields;
  std::uint32_t rows = 0;  ///< the largest number of rows
  std::size_t bytes = 0;   ///< a multiple of kAlignment

  static constexpr std::size_t kAlignment = 256;  ///< of a batch; the same as cudaMalloc's

  /// Error: kInvalidArgument for fields that cannot be laid out as a slot.
  static Result<BatchLayout> plan(const StreamInfo& info);
  static Result<BatchLayout> plan(const std::vector<FieldSpec>& specs, std::uint32_t rows);

  /// Adds the transfers of `batch` to a batch at `base`, except for fields that are computed on the device.
  /// Returns the number of rows of each field, or of values if it is ragged. Error: kInternal if the batch is
  /// larger than the layout.
  Result<std::vector<std::int64_t>> add_transfers(const BatchView& batch, std::byte* base,
                                                  std::vector<Transfer>& out) const;
};

}  // namespace headrace::gpu
