// Checks the server's description of a field that the device computes, and turns it into a job for the
// kernel.
#pragma once

#include <string>

#include "clientlib/gpu/rows/job.h"
#include "headrace/field.h"

namespace headrace::gpu {

/// The side that makes the random draws: the server, for each row of a batch, or the device.
enum class Drawn : std::uint8_t { kByServer, kOnDevice };

/// Fills in the part of `job` that computes rows of a field `spec` from source images. Returns what is wrong
/// with the description, or an empty string. With a valid plan, no bytes in source images or RowSteps can
/// make the kernel access other memory.
std::string plan_rows(const DeviceImage& image, const FieldSpec& spec, Drawn drawn, RowJob& job);

/// The number of blocks for each row of a launch.
std::int32_t row_parts(const RowJob& job);

}  // namespace headrace::gpu
