// SoftmaxModel in device memory, trained on the trainer's own CUDA stream.
#pragma once

#include <memory>
#include <string_view>

#include "headrace/device_loader.h"

class DeviceModel {
 public:
  virtual ~DeviceModel() = default;
  /// The stream on which step() queues its work.
  [[nodiscard]] virtual headrace::gpu::StreamHandle stream() const = 0;
  /// Queues one step over the valid rows of a batch, and returns at once. stream() must already wait for the
  /// batch.
  virtual void step(const headrace::gpu::DeviceBatch& batch) = 0;
  /// The mean loss of the steps since the last call; waits for them.
  virtual double mean_loss() = 0;
};

/// For the device "host", DeviceLoader's CPU backend: computes in host memory, and step() returns when done.
std::unique_ptr<DeviceModel> host_model(std::size_t classes, float rate);
/// Returns null if built without CUDA.
std::unique_ptr<DeviceModel> cuda_model(int ordinal, std::size_t classes, float rate);
