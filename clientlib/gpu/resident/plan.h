// From what a server says of a stream with `residence: gpu` to what the kernel can trust.
#pragma once

#include <cstddef>
#include <vector>

#include "clientlib/gpu/device/batch_layout.h"
#include "clientlib/gpu/rows/job.h"
#include "headrace/stream_info.h"

namespace headrace::gpu {

struct SetPlan {
  /// Where a field's rows are in the set's memory: all of sample 0, 1, ...
  struct Field {
    FieldSpec spec;  ///< as it is resident, and as the upload stream has it
    std::size_t offset = 0;
  };
  RowJob job;                 ///< of the set, without pointers into it
  std::vector<Field> fields;  ///< of the stream, in its order
  std::size_t image = 0;      ///< the field that is the picture, if job.channels says that there is one
  std::size_t bytes = 0;      ///< that the set takes on the device

  /// Sets the job's pointers, for a set that lies at `base`.
  void place(std::byte* base);
};

/// `layout`: of the stream's batches. kInvalidArgument names what cannot be; after it nothing that the kernel
/// computes leads out of the set or a batch.
Result<SetPlan> plan_set(const StreamInfo& info, const BatchLayout& layout);

}  // namespace headrace::gpu
