// From a chain of transforms, an image's size and a draw key to the steps that make one row.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "server/transform/plan.h"
#include "server/transform/stages/step.h"

namespace headrace::server::transform {

/// Draws every transform for an image of this size into `steps`, whose memory is reused. Returns
/// RenderReport::base. Refuses what torchvision refuses (an image smaller than a random crop, a side of
/// zero), and a side longer than 2^28. Between two transforms, only the pixels that a stage passes on are
/// made, and only these are limited by max_pixels (Plan::render): a long thin image may be resized to more
/// than max_pixels if a crop follows.
decode::Decoded<Size> draw_steps(const PlanConfig& config, decode::ImageSize size, DrawKey key,
                                 std::vector<Step>& steps);

/// How many of the chain's first transforms draw nothing and only move or resample pixels.
std::size_t prefix_length(const PlanConfig& config);
/// draw_steps() in two parts: the steps before the chain with its first `count` <= prefix_length transforms;
/// then the other transforms, for the image that the first part makes.
decode::Decoded<Size> prefix_steps(const PlanConfig& config, std::size_t count, decode::ImageSize size,
                                   std::vector<Step>& steps);
decode::Decoded<void> steps_after(const PlanConfig& config, std::size_t count, decode::ImageSize size,
                                  DrawKey key, std::vector<Step>& steps);

/// The parameters in torchvision's terms: see Plan::parameters.
nlohmann::json parameters_of(const PlanConfig& config, const std::vector<Step>& steps);

}  // namespace headrace::server::transform
