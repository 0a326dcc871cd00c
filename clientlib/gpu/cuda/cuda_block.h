// A block of a kernel's threads, for what CUDA's compiler compiles.
#pragma once

#include <cstdint>

namespace headrace::gpu {

extern __shared__ __align__(16) std::uint8_t shared_memory[];

/// A block of threads.
struct CudaBlock {
  template <class F>
  __device__ void each(F&& f) {
    f(static_cast<std::int32_t>(threadIdx.x));
    __syncthreads();
  }
  __device__ std::uint8_t* shared() { return shared_memory; }
  __device__ void add(unsigned long long* to, unsigned long long value) { atomicAdd(to, value); }
};

}  // namespace headrace::gpu
