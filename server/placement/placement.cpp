#include "server/placement/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace headrace::server::placement {

Placement place(std::span<const Node> nodes, std::span<const int> allowed_cpus, unsigned workers) {
  Placement out;
  std::vector<bool> memory;
  for (const Node& node : nodes) {
    Placement::Home home{.node = node.id, .cpus = {}};
    std::copy_if(node.cpus.begin(), node.cpus.end(), std::back_inserter(home.cpus), [&](int cpu) {
      return std::find(allowed_cpus.begin(), allowed_cpus.end(), cpu) != allowed_cpus.end();
    });
    if (home.cpus.empty()) continue;
    out.homes.push_back(std::move(home));
    memory.push_back(node.memory);
  }
  if (out.homes.size() < 2) return {};

  std::vector<std::size_t> given(out.homes.size(), 0);
  for (unsigned worker = 0; worker < workers; ++worker) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < given.size(); ++i)
      if (out.homes[i].cpus.size() * (given[best] + 1) > out.homes[best].cpus.size() * (given[i] + 1))
        best = i;
    ++given[best];
    out.workers.push_back(best);
  }
  if (std::count_if(given.begin(), given.end(), [](std::size_t count) { return count > 0; }) < 2) return {};
  for (std::size_t i = 0; i < given.size(); ++i)
    if (given[i] > 0 && memory[i]) out.memory.push_back(out.homes[i].node);
  if (out.memory.size() < 2) out.memory.clear();
  return out;
}

Placement place_here(unsigned workers) {
  return place(read_nodes(), allowed_cpus(), workers);
}

std::string to_string(const Placement& placement) {
  std::string out;
  for (std::size_t i = 0; i < placement.homes.size(); ++i)
    if (const auto count = std::count(placement.workers.begin(), placement.workers.end(), i); count > 0)
      out += fmt::format(
          "{}{} on node {}", out.empty() ? "" : ", ",
          out.empty() ? fmt::format("{} worker{}", count, count == 1 ? "" : "s") : std::to_string(count),
          placement.homes[i].node);
  if (!placement.memory.empty())
    out += fmt::format("; rings, caches and sets in memory on nodes {} in turn",
                       fmt::join(placement.memory, ", "));
  return out;
}

}  // namespace headrace::server::placement
