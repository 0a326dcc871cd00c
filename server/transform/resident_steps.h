// What of a chain is done once, before its set is uploaded to a device, and what is drawn and done there for
// each batch: headrace/residence.h.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "headrace/residence.h"
#include "server/transform/plan.h"

namespace headrace::server::transform {

/// Of a chain: which of its transforms cannot be done on the device out of a resident set, and why.
struct ResidentObstacle {
  std::size_t transform = 0;
  std::string why;
};

/// Nothing: after resizes and centre crops there are only crops with padding, flips, turns and normalize.
/// Sizes, which the source may have to say, are resident_chain()'s.
std::optional<ResidentObstacle> resident_obstacle(const PlanConfig& config);

struct ResidentChain {
  PlanConfig upload;  ///< makes what is to be resident of an image
  DeviceImage image;  ///< the rest; the field's number is not known here
};

/// kConfigInvalid: what resident_obstacle() says;
/// pictures that differ in size when the first transform draws; sizes beyond the kernel's.
Result<ResidentChain> resident_chain(const PlanConfig& config);

}  // namespace headrace::server::transform
