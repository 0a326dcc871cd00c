// Converting bytes to half types without a table: a thread block's table is in shared memory, where the
// threads of a warp wait for each other when their bytes differ.
#pragma once

#include <cstdint>

#include "clientlib/gpu/rows/job.h"

namespace headrace::gpu {

/// A line (ValueLine) that gives exactly pixels::value_bits() for each of the 256 bytes. False: none was
/// found, as for six in a thousand float16 normalizations. REQUIRES: `type` is a half type.
bool find_line(const pixels::Normalization& how, pixels::ValueType type, ValueLine& line);

/// Sets RowJob::values and, if they come from lines, RowJob::lines. REQUIRES: `job` has the channels,
/// element bytes and type of its rows.
void choose_values(RowJob& job);

}  // namespace headrace::gpu
