// Divides a chain for `residence: gpu` (headrace/residence.h): the transforms that the server applies once,
// before the upload, and those that the device draws and applies for each batch.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "headrace/residence.h"
#include "server/transform/plan.h"

namespace headrace::server::transform {

/// The first transform of a chain that the device cannot apply to a dataset in GPU memory, and the reason.
struct ResidentObstacle {
  std::size_t transform = 0;
  std::string why;
};

/// Empty: from the first random transform on, the chain has only crops, flips, 90-degree rotations and
/// normalize. resident_chain() checks image sizes, which may depend on the source.
std::optional<ResidentObstacle> resident_obstacle(const PlanConfig& config);

struct ResidentChain {
  PlanConfig upload;  ///< the transforms before the upload
  DeviceImage image;  ///< the transforms on the device; the field's index is not known here
};

/// kConfigInvalid: a resident_obstacle(), images that differ in size before the first random transform, and
/// images larger than kMaxDeviceSide.
Result<ResidentChain> resident_chain(const PlanConfig& config);

}  // namespace headrace::server::transform
