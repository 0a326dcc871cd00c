// The part of transforms.h that is about transforms of colours.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "server/transform/plan.h"

namespace headrace::server::config {

/// Nothing if `name` is none of them. `arguments` conform to the schema.
std::optional<transform::Transform> read_augmentation(const std::string& name,
                                                      const nlohmann::json& arguments);

nlohmann::json canonical(const transform::ColorJitter& t);
nlohmann::json canonical(const transform::RandomGrayscale& t);
nlohmann::json canonical(const transform::RandAugment& t);
nlohmann::json canonical(const transform::TrivialAugmentWide& t);
nlohmann::json canonical(const transform::GaussianBlur& t);
nlohmann::json canonical(const transform::RandomErasing& t);

}  // namespace headrace::server::config
