// From what a server says of a stream with `residence: gpu` to what the kernel can trust.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "clientlib/gpu/batch_layout.h"
#include "clientlib/gpu/resident/job.h"
#include "clientlib/pixels/value_table.h"
#include "headrace/stream_info.h"

namespace headrace::gpu {

struct GatherPlan {
  /// Where a field's rows are in the set's memory: all of sample 0, 1, ...
  struct Field {
    FieldSpec spec;  ///< as it is resident, and as the upload stream has it
    std::size_t offset = 0;
  };
  GatherJob job;  ///< of the set, without pointers into it
  pixels::ValueTable values{};
  std::vector<Field> fields;  ///< of the stream, in its order
  std::size_t image = 0;      ///< the field that is the picture, if job.channels says that there is one
  std::size_t values_at = 0;  ///< of `values`, behind the fields
  std::size_t bytes = 0;      ///< that the set takes on the device

  /// Pointers into the set, which lies at `base`.
  void place(std::byte* base);
};

/// `layout`: of the stream's batches. kInvalidArgument names what cannot be; after it nothing that the kernel
/// computes leads out of the set or a batch.
Result<GatherPlan> plan_gather(const StreamInfo& info, const BatchLayout& layout);

/// Blocks for each row of a launch.
std::int32_t gather_parts(const GatherJob& job);

}  // namespace headrace::gpu
