// Converts bytes to half types without a table: lookups in a table in shared memory cause bank conflicts.
#pragma once

#include <cstdint>

#include "clientlib/gpu/rows/job.h"

namespace headrace::gpu {

/// Finds a function that gives exactly pixels::value_bits() for each of the 256 bytes. False: there is none
/// near the exact one, as for 0.6% of the random float16 normalizations in row_plan_test.cpp. REQUIRES:
/// `type` is a half type.
bool find_affine(const pixels::Normalization& how, pixels::ValueType type, AffineValue& found);

/// Sets RowJob::conversion and RowJob::affine. REQUIRES: `job` has the channels, element bytes and type of
/// its rows.
void choose_conversion(RowJob& job);

}  // namespace headrace::gpu
