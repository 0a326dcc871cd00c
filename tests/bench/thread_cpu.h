// The CPU time of the calling thread.
#pragma once

#include <cstdint>
#include <ctime>

namespace headrace::testing {

inline std::uint64_t thread_cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000ULL + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace headrace::testing
