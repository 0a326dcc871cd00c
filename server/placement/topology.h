// The NUMA nodes of this machine, and what of them this process may use.
#pragma once

#include <filesystem>
#include <vector>

namespace headrace::server::placement {

struct Node {
  int id = 0;
  std::vector<int> cpus;  ///< online, ascending; none: a node of memory alone
  bool memory = false;    ///< has memory, and this process may take it
};

/// By id. Empty where the kernel says nothing of nodes. `root` is put before /proc and /sys: for tests.
std::vector<Node> read_nodes(const std::filesystem::path& root = "/");

/// CPUs that the calling thread may run on (its affinity mask, which lies in the cgroup's cpuset), ascending;
/// empty if the kernel does not tell.
std::vector<int> allowed_cpus();

}  // namespace headrace::server::placement
