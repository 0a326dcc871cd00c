// Checks the server's description of a stream with `residence: gpu`, and turns it into a job for the kernel.
#pragma once

#include <cstddef>
#include <vector>

#include "clientlib/gpu/device/batch_layout.h"
#include "clientlib/gpu/rows/job.h"
#include "headrace/stream_info.h"

namespace headrace::gpu {

struct SetPlan {
  /// A field of the dataset in GPU memory: its rows for sample 0, 1, ... are one after the other.
  struct Field {
    FieldSpec spec;          ///< in GPU memory and in the upload stream
    std::size_t offset = 0;  ///< bytes from the start of the dataset
  };
  RowJob job;                 ///< without the pointers, which place() sets
  std::vector<Field> fields;  ///< in the stream's order
  std::size_t image = 0;      ///< the image field's index; there is one if job.channels > 0
  std::size_t bytes = 0;      ///< of the whole dataset in GPU memory

  /// Sets the job's pointers for a dataset at `base`.
  void place(std::byte* base);
};

/// `layout`: of the stream's batches. Error: kInvalidArgument. With a plan, the kernel cannot access memory
/// outside the dataset and a batch.
Result<SetPlan> plan_set(const StreamInfo& info, const BatchLayout& layout);

}  // namespace headrace::gpu
