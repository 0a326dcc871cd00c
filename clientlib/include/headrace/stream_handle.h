// A device's stream in signatures that know no CUDA.
#pragma once

#include <cstdint>

namespace headrace::gpu {

/// A cudaStream_t as a number; 0: the legacy default stream, also where a program was built with one per
/// thread. The host twin takes any.
using StreamHandle = std::uintptr_t;

}  // namespace headrace::gpu
