// The kernel on the CPU: for tests and machines without a GPU. It is not fast.
#pragma once

#include "clientlib/gpu/rows/job.h"

namespace headrace::gpu {

/// Computes all rows of the job, whose "device" memory is host memory.
void run_on_host(const RowJob& job);

}  // namespace headrace::gpu
