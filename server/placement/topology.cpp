#include "server/placement/topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

namespace headrace::server::placement {
namespace {

namespace fs = std::filesystem;

/// More than any Linux has: CONFIG_NR_CPUS ends at 8,192, CONFIG_NODES_SHIFT at 10.
constexpr int kMostIds = 1 << 16;

/// Parses the kernel's lists: "0-3,8" is 0 1 2 3 8. Stops at anything else. (libnuma parses them, too, but
/// refuses numbers beyond this machine's, so tests could not describe another machine.)
std::vector<int> ids_of(std::string_view text) {
  std::vector<int> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int first = 0;
    auto read = std::from_chars(at, end, first);
    int last = first;
    if (read.ec == std::errc() && read.ptr < end && *read.ptr == '-')
      read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || first < 0 || last >= kMostIds) break;
    for (int id = first; id <= last; ++id) ids.push_back(id);
    if (read.ptr == end || *read.ptr != ',') break;
    at = read.ptr + 1;
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::vector<int> ids_in(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return ids_of(line);
}

/// Nodes that the cgroup's cpuset allows this process.
std::vector<int> allowed_memory(const fs::path& root) {
  constexpr std::string_view kKey = "Mems_allowed_list:";
  std::ifstream in(root / "proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(kKey)) continue;
    const auto first = line.find_first_not_of(" \t", kKey.size());
    return first == std::string::npos ? std::vector<int>{} : ids_of(std::string_view(line).substr(first));
  }
  return {};
}

}  // namespace

std::vector<Node> read_nodes(const fs::path& root) {
  const fs::path folder = root / "sys/devices/system/node";
  const std::vector<int> with_memory = ids_in(folder / "has_memory"), allowed = allowed_memory(root);
  const auto has = [](const std::vector<int>& ids, int id) {
    return std::binary_search(ids.begin(), ids.end(), id);
  };
  std::vector<Node> nodes;
  for (const int id : ids_in(folder / "online"))
    nodes.push_back({.id = id,
                     .cpus = ids_in(folder / ("node" + std::to_string(id)) / "cpulist"),
                     .memory = has(with_memory, id) && has(allowed, id)});
  return nodes;
}

std::vector<int> allowed_cpus() {
  // The mask of a large machine may need more room than cpu_set_t has.
  for (int most = CPU_SETSIZE; most <= 1 << 20; most *= 2) {
    cpu_set_t* const set = CPU_ALLOC(static_cast<std::size_t>(most));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(most));
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    std::vector<int> cpus;
    for (int cpu = 0; known && cpu < most; ++cpu)
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    CPU_FREE(set);
    if (known) return cpus;
  }
  return {};
}

}  // namespace headrace::server::placement
