// Shared by the transforms that crop.
#pragma once

#include <nlohmann/json.hpp>

#include "server/transform/stages/step.h"

namespace headrace::server::transform {

inline nlohmann::json describe_crop(const char* name, const Step& step) {
  return {{"op", name},
          {"top", step.crop.top},
          {"left", step.crop.left},
          {"height", step.crop.height},
          {"width", step.crop.width}};
}

inline nlohmann::json describe_padded_crop(const char* name, const Step& step) {
  auto out = describe_crop(name, step);
  out["padding"] = {step.left, step.top, step.right, step.bottom};
  return out;
}

}  // namespace headrace::server::transform
