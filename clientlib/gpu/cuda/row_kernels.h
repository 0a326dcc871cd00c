// C++ functions that start the kernels of rows/kernel.h, which the CUDA compiler builds in row_kernels.cu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "clientlib/gpu/rows/job.h"

namespace headrace::gpu {

/// Checks that the current device can run the kernels. Returns CUDA's error if it cannot.
cudaError_t prepare_row_kernels();
/// Sets `blocks` to how many of the job's thread blocks can run at once on device `ordinal`, which must be
/// current.
cudaError_t row_blocks_at_once(const RowJob& job, int ordinal, std::int32_t& blocks);
/// Queues a job's kernels on `stream`.
cudaError_t launch_rows(const RowJob& job, cudaStream_t stream);

}  // namespace headrace::gpu
