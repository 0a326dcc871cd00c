#include "clientlib/gpu/cuda/transform_kernels.h"

#include "clientlib/gpu/cuda/cuda_block.h"
#include "clientlib/gpu/transform/block.h"

namespace headrace::gpu {
namespace {

/// Rows are the grid's second axis: neighbouring blocks read neighbouring parts of one picture.
template <int kChannels, bool kColours, bool kSum>
__global__ void __launch_bounds__(kThreads, 3)
    transform_rows(const __grid_constant__ TransformJob job, std::int32_t contrast) {
  CudaBlock block;
  run_block<kChannels, kColours, kSum>(block, job, static_cast<std::int32_t>(blockIdx.y),
                                       static_cast<std::int32_t>(blockIdx.x),
                                       static_cast<std::int32_t>(gridDim.x), contrast);
}

using Kernel = void (*)(TransformJob, std::int32_t);

Kernel kernel_of(std::int32_t channels, bool colours, bool sum) {
  if (channels == 1)
    return sum       ? transform_rows<1, true, true>
           : colours ? transform_rows<1, true, false>
                     : transform_rows<1, false, false>;
  return sum       ? transform_rows<3, true, true>
         : colours ? transform_rows<3, true, false>
                   : transform_rows<3, false, false>;
}

}  // namespace

cudaError_t prepare_transform_kernels() {
  for (const std::int32_t channels : {1, 3})
    for (const bool sum : {false, true})
      for (const bool colours : {false, true}) {
        const auto error =
            cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_of(channels, colours, sum)),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSharedBytes));
        if (error != cudaSuccess) return error;
      }
  return cudaSuccess;
}

cudaError_t launch_transform(const TransformJob& job, std::int32_t tiles, std::int32_t shared_bytes,
                             bool colours, std::int32_t contrast, cudaStream_t stream) {
  const Kernel kernel = kernel_of(job.source_channels, colours, contrast >= 0);
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(job.rows));
  void* arguments[] = {const_cast<TransformJob*>(&job), &contrast};
  // Its own result: the last error may be the trainer's.
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, dim3(kThreads), arguments,
                          static_cast<std::size_t>(shared_bytes), stream);
}

}  // namespace headrace::gpu
