// What of a chain can be left to the device, and what is done there to one picture: headrace/row_steps.h.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "headrace/gpu_transform.h"
#include "headrace/row_steps.h"
#include "server/transform/geometry.h"
#include "server/transform/plan.h"

namespace headrace::server::transform {

/// The end of a chain that the device does in one pass, whatever is drawn and however large a picture is (but
/// for the kernel's limits, row_steps.h, of which device_steps tells).
struct DevicePart {
  std::size_t first = 0;  ///< the transforms from here on; what comes before them is made by the server
  std::string reason;     ///< why the one before is not among them; empty: all are
};

/// The longest such end: crops with padding, or crops and one resize; then flips and turns; then
/// colour_jitter, random_grayscale and to_y; then normalize. PlanConfig::multiple and derived are the
/// server's.
DevicePart device_part(const PlanConfig& config);

/// Draws the chain's transforms from `first` on for a picture of `size` that enters them; the same parameters
/// as Plan::render. kUnsupported names what the device does not do; the errors of draw_steps. `steps` and
/// `stages` are scratch.
decode::Decoded<pixels::RowSteps> device_steps(const PlanConfig& config, std::size_t first,
                                               decode::ImageSize size, DrawKey key, std::vector<Step>& steps,
                                               std::vector<Stage>& stages);

/// For a picture that the server has made as far as colours go, interleaved bytes of `size`: values and
/// layout are left to the device. So a row that device_steps refuses can stand in the same batch.
pixels::RowSteps finished_steps(decode::ImageSize size);

/// The rows of a compiled chain, as the device writes them.
gpu::TransformOutput device_output(const PlanConfig& config, const Plan& plan);

}  // namespace headrace::server::transform
