// The NUMA nodes of this machine, and which of their CPUs and memory this process may use.
#pragma once

#include <filesystem>
#include <vector>

namespace headrace::server::placement {

struct Node {
  int id = 0;
  std::vector<int> cpus;  ///< online, ascending; empty: a node with memory only
  bool memory = false;    ///< has memory that this process may use
};

/// By id. Empty if the kernel reports no nodes. `root` is prepended to /proc and /sys: for tests.
std::vector<Node> read_nodes(const std::filesystem::path& root = "/");

/// CPUs on which the calling thread may run (its affinity mask, which is within the cgroup's cpuset),
/// ascending; empty if the kernel does not report them.
std::vector<int> allowed_cpus();

}  // namespace headrace::server::placement
