// Splits a chain between the server and a device (`device: gpu`). The server decodes, crops and resizes, and
// ends with uint8 pictures of the output's size; the transforms at the chain's end that only flip and turn,
// change single pixels, normalize or erase are drawn by the server and made on the device
// (headrace/device_image.h). The rows are those of the whole chain, bit for bit.
#pragma once

#include "headrace/device_image.h"
#include "server/transform/geometry.h"
#include "server/transform/plan.h"

namespace headrace::server::transform {

class DeviceRows {
 public:
  /// kConfigInvalid: random values of random_erasing, several of it, and rows with a side above
  /// kMaxDeviceSide.
  static Result<DeviceRows> split(const PlanConfig& config, const Plan& whole);

  /// What the server does: interleaved bytes.
  [[nodiscard]] const Plan& pictures() const { return pictures_; }
  /// What the device does; the field's number is not known here.
  [[nodiscard]] const DeviceImage& image() const { return image_; }
  /// Draws the device's part for one row. `steps`: memory that is used again.
  [[nodiscard]] RowSteps draw(DrawKey key, std::vector<Step>& steps) const;

 private:
  DeviceRows(PlanConfig config, std::size_t first, Plan pictures, DeviceImage image)
      : config_(std::move(config)), first_(first), pictures_(std::move(pictures)), image_(std::move(image)) {}

  PlanConfig config_;  ///< the whole chain
  std::size_t first_;  ///< transform of the device
  Plan pictures_;
  DeviceImage image_;
};

}  // namespace headrace::server::transform
