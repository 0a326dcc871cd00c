// Transforms on the device: what is left of a chain when decoded pictures are there. One fused kernel crops,
// resizes, flips, turns, changes colours, normalizes and writes the trainer's layout and dtype; its pixels
// are those of the server's own path, uint8 and float alike, bit for bit.
//
//   auto transform = headrace::gpu::DeviceTransform::open("cuda:0", output).value();
//   transform.launch({pixels, bytes, pictures, 3}, steps, image, image_bytes, stream);
//
// `steps` come with the batch: the server draws them (row_steps.h). The host twin ("host") runs the kernel's
// own code, a thread of a block at a time: for tests and machines without a GPU, not for speed.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/error.h"
#include "headrace/field.h"
#include "headrace/row_steps.h"
#include "headrace/stream_handle.h"

namespace headrace::gpu {

class Device;  // clientlib/gpu/device.h

/// A picture: interleaved rows of width * channels bytes, without gaps.
struct PictureAt {
  std::uint64_t offset = 0;  ///< bytes from the batch's first
  std::int32_t height = 0, width = 0;
};

/// A batch of pictures in device memory.
struct PictureBatch {
  const std::byte* pixels = nullptr;
  std::size_t bytes = 0;
  std::span<const PictureAt> pictures;
  std::int32_t channels = 3;  ///< 3, or 1: gray
};

/// What rows become; all of them have one shape.
struct TransformOutput {
  std::int32_t height = 0, width = 0;
  std::int32_t channels = 3;      ///< of the pictures; 1 of three: the first one (see PixelStepKind::kLuma)
  DType dtype = DType::kFloat32;  ///< uint8, float16, bfloat16, float32
  pixels::PixelLayout layout = pixels::PixelLayout::kNchw;
  std::vector<double> mean, std;  ///< Normalize's, one per channel; both empty: x / 255

  [[nodiscard]] std::size_t row_bytes() const;
};

class DeviceTransform {
 public:
  /// `device`: "cuda:N" or "host". kEnvironment: there is no such device, or Headrace was built without
  /// CUDA's compiler; kInvalidArgument: another name, or an output that cannot be.
  static Result<DeviceTransform> open(std::string_view device, const TransformOutput& output);
  /// The same on a device that is open; it must not outlive that one.
  static Result<DeviceTransform> open(Device& device, const TransformOutput& output);
  DeviceTransform(DeviceTransform&&) noexcept;
  DeviceTransform& operator=(DeviceTransform&&) noexcept;
  ~DeviceTransform();  ///< waits for what was queued

  /// Queues the work on `stream`, behind what makes the pixels there; `output` (device memory, aligned to an
  /// element) gets steps.size() rows. Steps and pictures are copied and then checked, so they may lie in
  /// memory that another process can write to: kInvalidArgument names the row and what is wrong with it, and
  /// nothing was queued. Pixels and output must live until the stream is past it.
  Result<void> launch(const PictureBatch& batch, std::span<const pixels::RowSteps> steps, std::byte* output,
                      std::size_t output_bytes, StreamHandle stream);

 private:
  struct Impl;
  explicit DeviceTransform(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace::gpu
