// The kernel on the host: for tests and machines without a GPU, not for speed.
#pragma once

#include "clientlib/gpu/rows/job.h"

namespace headrace::gpu {

/// Makes all rows of the job; "device" memory is host memory.
void run_on_host(const RowJob& job);

}  // namespace headrace::gpu
