// What the CUDA compiler makes of block.h, for the C++ compiler.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "clientlib/gpu/transform/task.h"

namespace headrace::gpu {

/// Once for each device: lets blocks have kSharedBytes.
cudaError_t prepare_transform_kernels();

/// Queues a kernel with `tiles` blocks for each row, of `shared_bytes` each. contrast >= 0: it makes the sums
/// of the contrasts of that number; else the rows, with or without colours.
cudaError_t launch_transform(const TransformJob& job, std::int32_t tiles, std::int32_t shared_bytes,
                             bool colours, std::int32_t contrast, cudaStream_t stream);

}  // namespace headrace::gpu
