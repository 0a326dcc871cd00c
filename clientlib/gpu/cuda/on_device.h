// Calls to a CUDA device that leave no trace in the process around them.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <string_view>

#include "clientlib/gpu/cuda/context.h"
#include "headrace/error.h"

namespace headrace::gpu {

/// Reads and clears: an error that stays behind would surface in the trainer's next, innocent call.
inline Error taken(cudaError_t error, std::string_view doing, ErrorCode code = ErrorCode::kInternal) {
  (void)cudaGetLastError();
  return {code, fmt::format("{}: {} ({})", doing, cudaGetErrorString(error), cudaGetErrorName(error))};
}

/// Works on a device without leaving a trace: neither that device as the thread's, nor a context on another
/// one, which going back to it by cudaSetDevice would make (since CUDA 12): hundreds of megabytes on the
/// first GPU for each rank. Nor does what is called here end a capture of the trainer's.
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
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the thread's own
  int before_ = -1;
  bool pushed_ = false, changed_ = false;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace headrace::gpu
