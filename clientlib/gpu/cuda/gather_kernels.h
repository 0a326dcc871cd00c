// What the CUDA compiler makes of gather.h, for the C++ compiler.
#pragma once

#include <cuda_runtime_api.h>

#include "clientlib/gpu/resident/job.h"

namespace headrace::gpu {

/// Whether the device can run the kernels: as an error of CUDA's.
cudaError_t prepare_gather_kernels();
cudaError_t launch_gather(const GatherJob& job, cudaStream_t stream);

}  // namespace headrace::gpu
