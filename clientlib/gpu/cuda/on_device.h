// Calls to a CUDA device that leave no trace in the process around them.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <string_view>

#include "headrace/error.h"

namespace headrace::gpu {

/// Reads and clears: an error that stays behind would surface in the trainer's next, innocent call.
inline Error taken(cudaError_t error, std::string_view doing, ErrorCode code = ErrorCode::kInternal) {
  (void)cudaGetLastError();
  return {code, fmt::format("{}: {} ({})", doing, cudaGetErrorString(error), cudaGetErrorName(error))};
}

/// Works on a device without leaving it current: the trainer's own choice stands.
class OnDevice {
 public:
  explicit OnDevice(int ordinal) {
    if (cudaGetDevice(&before_) != cudaSuccess) (void)cudaGetLastError();
    error_ = before_ == ordinal ? cudaSuccess : cudaSetDevice(ordinal);
    changed_ = before_ != ordinal;
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (changed_ && before_ >= 0) (void)cudaSetDevice(before_);
  }
  [[nodiscard]] cudaError_t error() const { return error_; }

 private:
  int before_ = -1;
  bool changed_ = false;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace headrace::gpu
