#include "clientlib/gpu/cuda/row_kernels.h"

#include <cstdint>

#include "clientlib/gpu/rows/kernel.h"

namespace headrace::gpu {
namespace {

extern __shared__ __align__(16) std::uint8_t shared_memory[];

struct CudaBlock {
  template <class F>
  __device__ void each(F&& f) {
    f(static_cast<std::int32_t>(threadIdx.x));
    __syncthreads();
  }
  __device__ std::uint8_t* shared() { return shared_memory; }
  __device__ void add(unsigned long long* to, unsigned long long value) { atomicAdd(to, value); }
};

template <int kChannels, Conversion kConversion, bool kColors>
__global__ void __launch_bounds__(kRowThreads) make_rows(const __grid_constant__ RowJob job) {
  CudaBlock block;
  run_rows<kChannels, kConversion, kColors>(block, job, static_cast<std::int32_t>(blockIdx.x));
}

template <int kChannels>
__global__ void __launch_bounds__(kRowThreads)
    sum_rows(const __grid_constant__ RowJob job, std::int32_t contrast) {
  CudaBlock block;
  sum_grays<kChannels>(block, job, contrast, static_cast<std::int32_t>(blockIdx.x));
}

const void* kernel_of(const RowJob& job) {
  return with_variant(job, [](auto channels, auto conversion, auto colors) {
    return reinterpret_cast<const void*>(
        make_rows<decltype(channels)::value, decltype(conversion)::value, decltype(colors)::value>);
  });
}

/// Returns the launch's own error, not cudaGetLastError(), which may be the trainer's.
cudaError_t queue(const void* kernel, const RowJob& job, std::int32_t shared, void** arguments,
                  cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(job.rows) * static_cast<unsigned>(job.parts));
  return cudaLaunchKernel(kernel, grid, dim3(kRowThreads), arguments, static_cast<std::size_t>(shared),
                          stream);
}

}  // namespace

cudaError_t prepare_row_kernels() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, kernel_of(RowJob()));
}

cudaError_t row_blocks_at_once(const RowJob& job, int ordinal, std::int32_t& blocks) {
  int processors = 0, on_each = 0;
  auto error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, ordinal);
  if (error == cudaSuccess)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&on_each, kernel_of(job), kRowThreads,
                                                          static_cast<std::size_t>(row_shared_bytes(job)));
  blocks = processors * on_each;
  return error;
}

cudaError_t launch_rows(const RowJob& job, cudaStream_t stream) {
  auto* const given = const_cast<RowJob*>(&job);
  const void* const sums = job.channels == 3 ? reinterpret_cast<const void*>(sum_rows<3>)
                                             : reinterpret_cast<const void*>(sum_rows<1>);
  for (std::int32_t contrast = 0; contrast < job.contrasts; ++contrast) {
    void* arguments[] = {given, &contrast};
    if (const auto error = queue(sums, job, sum_shared_bytes(), arguments, stream); error != cudaSuccess)
      return error;
  }
  void* arguments[] = {given};
  return queue(kernel_of(job), job, row_shared_bytes(job), arguments, stream);
}

}  // namespace headrace::gpu
