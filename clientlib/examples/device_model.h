// SoftmaxModel where its batches are: in device memory, trained on a stream of the trainer's own.
#pragma once

#include <memory>
#include <string_view>

#include "headrace/device_loader.h"

class DeviceModel {
 public:
  virtual ~DeviceModel() = default;
  /// Where step() queues its work.
  [[nodiscard]] virtual headrace::gpu::StreamHandle stream() const = 0;
  /// Queues one step over the valid rows of a batch that stream() has been made to wait for. Returns at once.
  virtual void step(const headrace::gpu::DeviceBatch& batch) = 0;
  /// The mean loss of the steps since the last call; waits for them.
  virtual double mean_loss() = 0;
};

/// On "host", which DeviceLoader calls so: in host memory, at once.
std::unique_ptr<DeviceModel> host_model(std::size_t classes, float rate);
/// Null: built without CUDA's compiler.
std::unique_ptr<DeviceModel> cuda_model(int ordinal, std::size_t classes, float rate);
