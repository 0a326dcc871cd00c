#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "clientlib/ring/segment.h"

namespace headrace::ring {
namespace {

/// Where a hierarchy is mounted, and the group at the mount point (not "/" in a container without a cgroup
/// namespace).
struct Mount {
  std::string point;
  std::string group;
};
struct Hierarchy {
  std::string_view limit_file, usage_file, limited_by;
  std::vector<std::string_view> reclaimable;
};
const Hierarchy kVersion2{
    "memory.max", "memory.current", "cgroup memory.max", {"active_file", "inactive_file"}};
const Hierarchy kVersion1{"memory.limit_in_bytes",
                          "memory.usage_in_bytes",
                          "cgroup memory.limit_in_bytes",
                          {"total_active_file", "total_inactive_file"}};

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;  // "max" is not a number: no limit
}

std::uint64_t reclaimable_bytes(const std::string& stat_path, const Hierarchy& kind) {
  std::ifstream file(stat_path);
  std::uint64_t sum = 0, value = 0;
  for (std::string key; file >> key >> value;)
    if (std::ranges::find(kind.reclaimable, key) != kind.reclaimable.end()) sum += value;
  return sum;
}

std::optional<Mount> find_mount(const std::string& root, bool version2) {
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string id, parent, device, group, point, word, type, source, super;
    words >> id >> parent >> device >> group >> point;
    while (words >> word && word != "-") {
    }
    words >> type >> source >> super;
    const bool memory = ("," + super + ",").find(",memory,") != std::string::npos;
    if (version2 ? type == "cgroup2" : type == "cgroup" && memory) return Mount{point, group};
  }
  return std::nullopt;
}

/// This process's group in a hierarchy, from /proc/self/cgroup ("0::/a/b" or "4:memory,hugetlb:/a/b").
std::optional<std::string> find_group(const std::string& root, bool version2) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (version2 ? controllers == ",," : controllers.find(",memory,") != std::string::npos)
      return line.substr(second + 1);
  }
  return std::nullopt;
}

void narrow(MemoryHeadroom& least, std::uint64_t bytes, std::string_view by) {
  if (bytes >= least.bytes) return;
  least.bytes = bytes;
  least.limited_by = by;
}

void narrow_by_cgroups(MemoryHeadroom& least, const std::string& root, bool version2, std::uint64_t freed) {
  const auto mount = find_mount(root, version2);
  auto group = find_group(root, version2);
  if (!mount || !group) return;
  if (mount->group != "/") group = group->starts_with(mount->group) ? group->substr(mount->group.size()) : "";
  const Hierarchy& kind = version2 ? kVersion2 : kVersion1;
  for (std::string path = *group == "/" ? "" : *group;; path.resize(path.rfind('/'))) {
    const std::string folder = fmt::format("{}{}{}/", root, mount->point, path);
    const auto limit = read_number(folder + std::string(kind.limit_file));
    const auto usage = read_number(folder + std::string(kind.usage_file));
    if (limit && usage) {
      const std::uint64_t unused = reclaimable_bytes(folder + "memory.stat", kind) + freed;
      const std::uint64_t used = *usage - std::min(*usage, unused);
      narrow(least, *limit - std::min(*limit, used), kind.limited_by);
    }
    if (path.find('/') == std::string::npos) return;
  }
}

void narrow_by_address_space(MemoryHeadroom& least, const std::string& root) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const std::uint64_t pages = read_number(root + "/proc/self/statm").value_or(0);
  const std::uint64_t used = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  narrow(least, limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, used), "RLIMIT_AS (ulimit -v)");
}

void narrow_by_machine(MemoryHeadroom& least, const std::string& root, std::uint64_t freed) {
  std::ifstream file(root + "/proc/meminfo");
  std::uint64_t total = std::numeric_limits<std::uint64_t>::max();  // the line before
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t kib = 0;
    if (!(words >> key >> kib)) continue;
    if (key == "MemTotal:") total = kib * 1024;
    if (key == "MemAvailable:") return narrow(least, std::min(total, kib * 1024 + freed), "MemAvailable");
  }
}

MemoryHeadroom headroom_of_pages(const std::string& root, std::uint64_t freed) {
  MemoryHeadroom least{std::numeric_limits<std::uint64_t>::max(), "nothing"};
  narrow_by_cgroups(least, root, true, freed);
  narrow_by_cgroups(least, root, false, freed);
  narrow_by_machine(least, root, freed);
  return least;
}

}  // namespace

MemoryHeadroom mapped_headroom(const std::string& root) {
  return headroom_of_pages(root, 0);
}

MemoryHeadroom memory_headroom(const std::string& root, std::uint64_t freed) {
  MemoryHeadroom least = headroom_of_pages(root, freed);
  narrow_by_address_space(least, root);
  return least;
}

}  // namespace headrace::ring
