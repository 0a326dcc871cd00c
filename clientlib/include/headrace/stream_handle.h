// The type of a device's stream, in signatures that do not need CUDA's headers.
#pragma once

#include <cstdint>

namespace headrace::gpu {

/// A cudaStream_t as a number. 0: the legacy default stream, even in a program that was built with a default
/// stream per thread. The CPU backend accepts any value.
using StreamHandle = std::uintptr_t;

}  // namespace headrace::gpu
