#include "server/metrics/cpu_wait.h"

#include <fmt/format.h>

#include <fstream>

namespace headrace::server::metrics {

std::uint64_t cpu_wait_ns(pid_t thread) {
  std::ifstream file(fmt::format("/proc/self/task/{}/schedstat", thread));
  std::uint64_t ran = 0, waited = 0;  // and the number of turns
  return file >> ran >> waited ? waited : 0;
}

}  // namespace headrace::server::metrics
