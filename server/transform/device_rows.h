// Splits a chain between the server and a device (`device: gpu`). The server decodes, crops and resizes, up
// to uint8 images of the output's size. The last transforms, which only flip, rotate by 90 degrees, change
// single pixels, normalize or erase, run on the device, with draws made by the server
// (headrace/device_image.h). The rows are the same as the whole chain's, bit for bit.
#pragma once

#include "headrace/device_image.h"
#include "server/transform/plan.h"
#include "server/transform/stages/step.h"

namespace headrace::server::transform {

/// The index of a chain's first transform that runs on the device; all later ones do, too.
std::size_t device_begins(const std::vector<Transform>& chain);

class DeviceRows {
 public:
  /// kConfigInvalid: random_erasing with random values or more than once; rows with a side above
  /// kMaxDeviceSide.
  static Result<DeviceRows> split(const PlanConfig& config, const Plan& whole);

  /// The server's part, which makes interleaved uint8 images.
  [[nodiscard]] const Plan& pictures() const { return pictures_; }
  /// The device's part; the field's index is not known here.
  [[nodiscard]] const DeviceImage& image() const { return image_; }
  /// Makes the draws of the device's part for one row. `steps`: a buffer to reuse.
  [[nodiscard]] RowSteps draw(DrawKey key, std::vector<Step>& steps) const;

 private:
  DeviceRows(PlanConfig config, std::size_t first, Plan pictures, DeviceImage image)
      : config_(std::move(config)), first_(first), pictures_(std::move(pictures)), image_(std::move(image)) {}

  PlanConfig config_;  ///< the whole chain
  std::size_t first_;  ///< index of the device's first transform
  Plan pictures_;
  DeviceImage image_;
};

}  // namespace headrace::server::transform
