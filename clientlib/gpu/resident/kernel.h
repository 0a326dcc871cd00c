// The seam of resident sets: what differs between CUDA (cuda/) and the host twin (host/). CMake chooses the
// files; nothing outside cuda/ includes a CUDA header.
//
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <optional>

#include "clientlib/gpu/resident/job.h"
#include "headrace/error.h"
#include "headrace/stream_handle.h"

namespace headrace::gpu {

class GatherKernel {
 public:
  GatherKernel() = default;
  GatherKernel(const GatherKernel&) = delete;
  GatherKernel& operator=(const GatherKernel&) = delete;
  virtual ~GatherKernel() = default;

  /// Queues one launch; the host goes on. The twin's ends when it returns.
  virtual Result<void> launch(const GatherJob& job, StreamHandle stream) = 0;
};

/// `ordinal`: none: the host's.
Result<std::unique_ptr<GatherKernel>> open_gather(std::optional<int> ordinal);
Result<std::unique_ptr<GatherKernel>> open_cuda_gather(int ordinal);
std::unique_ptr<GatherKernel> open_host_gather();

}  // namespace headrace::gpu
