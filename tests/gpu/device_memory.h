// Memory of the first GPU, for tests that need a GPU.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

namespace headrace::gpu {

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) {
    EXPECT_EQ(cudaMalloc(&memory_, std::max<std::size_t>(bytes, 1)), cudaSuccess);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { (void)cudaFree(memory_); }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_ = nullptr;
};

}  // namespace headrace::gpu
