// How long this process waited for CPUs.
#pragma once

#include <cstdint>

namespace headrace::server::metrics {

/// How long the threads that exist now were ready to run while other threads had the CPUs, or a CPU limit
/// held them back, all together in ns. 0 if the system does not tell (/proc/PID/task/TID/schedstat).
std::uint64_t cpu_wait_ns();

}  // namespace headrace::server::metrics
