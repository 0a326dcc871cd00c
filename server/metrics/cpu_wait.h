// How long threads waited for CPUs.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace headrace::server::metrics {

/// How long a thread of this process was ready to run while other threads used the CPUs, or a CPU limit
/// applied, in ns. 0 if the system does not tell (/proc/PID/task/TID/schedstat), or the thread has ended.
std::uint64_t cpu_wait_ns(pid_t thread);

}  // namespace headrace::server::metrics
