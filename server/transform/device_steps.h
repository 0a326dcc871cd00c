// What is done to one picture on the device, where a chain's last stage is left to it: headrace/row_steps.h.
#pragma once

#include <cstdint>

#include "headrace/gpu_transform.h"
#include "headrace/row_steps.h"
#include "server/transform/geometry.h"
#include "server/transform/plan.h"

namespace headrace::server::transform {

/// One picture's last stage as the kernel's steps; they are for the whole of the stage's input. kUnsupported
/// says what of it the kernel does not do. `luma`: to_y comes at the end.
decode::Decoded<pixels::RowSteps> device_steps(const Stage& stage, ResizePasses passes, std::int32_t channels,
                                               bool luma);

/// For a picture that the server has made as far as colours go, interleaved bytes of `size`: luma, values and
/// layout are left to the device. So a row that device_steps refuses can stand in the same batch.
pixels::RowSteps finished_steps(decode::ImageSize size, bool luma);

/// The rows of a compiled chain, as the device writes them.
gpu::TransformOutput device_output(const PlanConfig& config, const Plan& plan);

}  // namespace headrace::server::transform
