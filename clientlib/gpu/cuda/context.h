// The driver's stack of contexts, which the CUDA runtime has no functions for.
#pragma once

namespace headrace::gpu {

/// Makes the device's primary context, which the CUDA runtime uses, this thread's current one until
/// pop_context(). False: the driver lacks these functions, and nothing changed.
bool push_context(int ordinal);
/// Restores the context from before push_context(), or none.
void pop_context();

}  // namespace headrace::gpu
