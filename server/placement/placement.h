// Decides on which NUMA nodes workers run, and which nodes hold the memory that they share.
//
// Each worker stays on one node, on any of its CPUs, so that its own memory is near. Memory that all workers
// read or write (rings, caches, sets in memory) has no such node: it is interleaved over the workers' nodes,
// page by page, so that no single node's memory serves them all. This includes rings: any worker fills any
// slice of a slot, and clients, which read them, run anywhere.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "server/placement/topology.h"

namespace headrace::server::placement {

/// Empty: the kernel decides everything.
struct Placement {
  struct Home {
    int node = 0;
    std::vector<int> cpus;  ///< CPUs of the node that the process may use
  };
  std::vector<Home> homes;
  std::vector<std::size_t> workers;  ///< worker i runs at homes[workers[i]]
  std::vector<int> memory;           ///< nodes of the memory that workers share; empty: the kernel decides

  [[nodiscard]] bool empty() const { return homes.empty(); }
};

/// Workers are distributed in proportion to the nodes' allowed CPUs (D'Hondt's method: with as many workers
/// as CPUs, each CPU gets one). Empty unless at least two nodes get workers. Memory is that of nodes with
/// workers, if at least two of them have memory.
Placement place(std::span<const Node> nodes, std::span<const int> allowed_cpus, unsigned workers);

/// For this machine and process.
Placement place_here(unsigned workers);

/// "3 workers on node 0, 2 on node 1; rings, caches and sets in memory on nodes 0, 1 in turn"
std::string to_string(const Placement& placement);

}  // namespace headrace::server::placement
