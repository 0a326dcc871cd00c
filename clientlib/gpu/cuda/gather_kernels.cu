#include "clientlib/gpu/cuda/cuda_block.h"
#include "clientlib/gpu/cuda/gather_kernels.h"
#include "clientlib/gpu/resident/gather.h"

namespace headrace::gpu {
namespace {

template <int kStored, int kBytes>
__global__ void __launch_bounds__(kGatherThreads) gather_rows(const __grid_constant__ GatherJob job) {
  CudaBlock block;
  run_gather<kStored, kBytes>(block, job, static_cast<std::int32_t>(blockIdx.x));
}

const void* kernel_of(const GatherJob& job) {
  return with_elements(job, [](auto stored, auto bytes) {
    return reinterpret_cast<const void*>(gather_rows<decltype(stored)::value, decltype(bytes)::value>);
  });
}

}  // namespace

cudaError_t prepare_gather_kernels() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, kernel_of(GatherJob()));
}

cudaError_t launch_gather(const GatherJob& job, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(job.batches) * static_cast<unsigned>(job.rows) *
                  static_cast<unsigned>(job.parts));
  void* arguments[] = {const_cast<GatherJob*>(&job)};
  // Its own result: the last error may be the trainer's.
  return cudaLaunchKernel(kernel_of(job), grid, dim3(kGatherThreads), arguments,
                          static_cast<std::size_t>(gather_shared_bytes(job)), stream);
}

}  // namespace headrace::gpu
