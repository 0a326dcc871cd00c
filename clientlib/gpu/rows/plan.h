// From what a server says of a field that is made on the device to a job that the kernel can trust.
#pragma once

#include <string>

#include "clientlib/gpu/rows/job.h"
#include "headrace/field.h"

namespace headrace::gpu {

/// Who draws what is random: the server, for each row of a batch; or the device.
enum class Drawn : std::uint8_t { kByServer, kOnDevice };

/// Fills in how rows of `image` become those of a field like `spec`. Gives what is wrong with it; empty:
/// nothing, and then no bytes of pictures and steps can lead the kernel out of its memory.
std::string plan_rows(const DeviceImage& image, const FieldSpec& spec, Drawn drawn, RowJob& job);

/// Blocks for each row of a launch.
std::int32_t row_parts(const RowJob& job);

}  // namespace headrace::gpu
