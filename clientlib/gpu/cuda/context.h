// The driver's stack of contexts, for which the runtime has no call.
#pragma once

namespace headrace::gpu {

/// Makes the device's primary context, which CUDA's runtime works in, this thread's for a while. False: the
/// driver does not have these calls, and nothing happened.
bool push_context(int ordinal);
/// Back to what was before, be it none.
void pop_context();

}  // namespace headrace::gpu
