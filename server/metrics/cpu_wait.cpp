#include "server/metrics/cpu_wait.h"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace headrace::server::metrics {

std::uint64_t cpu_wait_ns() {
  std::uint64_t sum = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator task("/proc/self/task", error), end; !error && task != end;
       task.increment(error)) {
    std::ifstream file(task->path() / "schedstat");  // ns on a CPU, ns of waiting for one, turns
    std::uint64_t ran = 0, waited = 0;
    if (file >> ran >> waited) sum += waited;
  }
  return sum;
}

}  // namespace headrace::server::metrics
