// CUDA calls that do not change the caller's CUDA state.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <string_view>

#include "clientlib/gpu/cuda/context.h"
#include "headrace/error.h"

namespace headrace::gpu {

/// Makes an Error, and clears CUDA's last error, which would otherwise be reported by the trainer's next
/// call.
inline Error taken(cudaError_t error, std::string_view doing, ErrorCode code = ErrorCode::kInternal) {
  (void)cudaGetLastError();
  return {code, fmt::format("{}: {} ({})", doing, cudaGetErrorString(error), cudaGetErrorName(error))};
}

/// Makes a device current for a scope, and restores the thread's state afterwards. It does not restore by
/// cudaSetDevice, which since CUDA 12 creates a context on the previous device: hundreds of megabytes on the
/// first GPU for each rank. Calls in the scope do not end the trainer's stream capture.
class OnDevice {
 public:
  explicit OnDevice(int ordinal) {
    if (cudaThreadExchangeStreamCaptureMode(&mode_) != cudaSuccess) (void)cudaGetLastError();
    if (cudaGetDevice(&before_) != cudaSuccess) (void)cudaGetLastError();
    if (before_ == ordinal) return;
    pushed_ = push_context(ordinal);
    if (pushed_) return;
    error_ = cudaSetDevice(ordinal);
    if (error_ != cudaSuccess) (void)cudaGetLastError();
    changed_ = true;
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (pushed_) pop_context();
    if (changed_ && before_ >= 0 && cudaSetDevice(before_) != cudaSuccess) (void)cudaGetLastError();
    if (cudaThreadExchangeStreamCaptureMode(&mode_) != cudaSuccess) (void)cudaGetLastError();
  }
  [[nodiscard]] cudaError_t error() const { return error_; }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // after the exchange: the thread's own mode
  int before_ = -1;
  bool pushed_ = false, changed_ = false;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace headrace::gpu
