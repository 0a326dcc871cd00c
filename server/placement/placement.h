// On which NUMA nodes workers run and what they share lies.
//
// Each worker stays on one node, on any of its CPUs, so that its own memory is near. What all workers read or
// write (rings, caches, sets in memory) has no such node: it lies on the workers' nodes in turn, page by
// page, so that no node's memory serves them all. A ring is no exception: any worker fills any slice of a
// slot, and trainers, which read it, run where they like.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "server/placement/topology.h"

namespace headrace::server::placement {

/// Empty: everything stays where the kernel puts it.
struct Placement {
  struct Home {
    int node = 0;
    std::vector<int> cpus;  ///< of the node, those that the process may use
  };
  std::vector<Home> homes;
  std::vector<std::size_t> workers;  ///< worker i lives at homes[workers[i]]
  std::vector<int> memory;           ///< nodes of what workers share; empty: where the kernel puts it

  [[nodiscard]] bool empty() const { return homes.empty(); }
};

/// Workers are shared out in proportion to the nodes' allowed CPUs (D'Hondt's method: as many workers as CPUs
/// is one for each). Empty unless workers come to two nodes at least. Memory is that of nodes with workers,
/// if two of them have some.
Placement place(std::span<const Node> nodes, std::span<const int> allowed_cpus, unsigned workers);

/// Of this machine and process.
Placement place_here(unsigned workers);

/// "3 workers on node 0, 2 on node 1; rings, caches and sets in memory on nodes 0, 1 in turn"
std::string to_string(const Placement& placement);

}  // namespace headrace::server::placement
