// Where the fields of a batch lie in device memory: as in a slot of the ring, so that a batch is one copy.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "headrace/device_loader.h"

namespace headrace::gpu {

struct BatchLayout {
  struct Field {
    std::size_t values = 0, offsets = 0;  ///< bytes from the batch's begin
    bool finished_here = false;           ///< on the device: what lies in the ring is not what comes here
  };
  std::shared_ptr<const std::vector<FieldSpec>> specs;
  std::vector<Field> fields;
  std::uint32_t rows = 0;  ///< that there is room for
  std::size_t bytes = 0;   ///< a multiple of kAlignment

  static constexpr std::size_t kAlignment = 256;  ///< of a batch, as CUDA's own allocations

  /// kInvalidArgument: fields that no ring has.
  static Result<BatchLayout> plan(const StreamInfo& info);
  static Result<BatchLayout> plan(const std::vector<FieldSpec>& specs, std::uint32_t rows);

  /// Of `batch`, to `base`, but for what is finished there. Gives each field's rows, or values if it is
  /// ragged. kInternal: they are more than there is room for.
  Result<std::vector<std::int64_t>> add_transfers(const BatchView& batch, std::byte* base,
                                                  std::vector<Transfer>& out) const;
};

}  // namespace headrace::gpu
