// What the CUDA compiler makes of rows/kernel.h, for the C++ compiler.
#pragma once

#include <cuda_runtime_api.h>

#include "clientlib/gpu/rows/job.h"

namespace headrace::gpu {

/// Whether the current device can run the kernels: as an error of CUDA's.
cudaError_t prepare_row_kernels();
/// Queues the launches of a job.
cudaError_t launch_rows(const RowJob& job, cudaStream_t stream);

}  // namespace headrace::gpu
