// The seam of device transforms: what differs between CUDA (cuda/) and the host twin (host/). CMake chooses
// the files; nothing outside cuda/ includes a CUDA header.
//
// Thread safety: one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "clientlib/gpu/transform/task.h"
#include "clientlib/pixels/value_table.h"
#include "headrace/error.h"
#include "headrace/gpu_transform.h"

namespace headrace::gpu {

class TransformKernels {
 public:
  TransformKernels() = default;
  TransformKernels(const TransformKernels&) = delete;
  TransformKernels& operator=(const TransformKernels&) = delete;
  virtual ~TransformKernels() = default;  ///< waits for what was queued

  /// Queues a job of checked tasks; both are read before it returns. `job`'s pointers to what it takes along
  /// (tasks, values, sums) are filled in here.
  virtual Result<void> launch(TransformJob job, std::span<const RowTask> tasks,
                              const pixels::ValueTable& values, StreamHandle stream) = 0;
};

Result<std::unique_ptr<TransformKernels>> open_cuda_transform(int ordinal);
/// `queue`: what stands for a stream, and runs its work later, in order; none: a launch ends when it returns.
std::unique_ptr<TransformKernels> open_host_transform(std::function<void(std::function<void()>)> queue = {});

}  // namespace headrace::gpu
