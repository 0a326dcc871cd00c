#include "server/config/cpus.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "server/placement/topology.h"

namespace headrace::server::config {
namespace {

namespace fs = std::filesystem;

unsigned affinity() {
  const auto cpus = static_cast<unsigned>(placement::allowed_cpus().size());
  return cpus > 0 ? cpus : std::max(1U, std::thread::hardware_concurrency());
}

// Both files hold words; cgroup v2's cpu.max is "max 100000" or "200000 100000".
std::optional<double> quota_v2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> quota_v1(const fs::path& group) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

template <class Read>
void take_smallest(const fs::path& mount, fs::path group, Read read, std::optional<double>& smallest) {
  // In a container the path may be the host's while only the root is mounted: a missing group sets no limit.
  for (group = group.relative_path();; group = group.parent_path()) {
    if (const auto quota = read(mount / group); quota && (!smallest || *quota < *smallest)) smallest = quota;
    if (group.empty()) return;
  }
}

bool lists(const std::string& controllers, const std::string& wanted) {
  std::istringstream words(controllers);
  for (std::string word; std::getline(words, word, ',');)
    if (word == wanted) return true;
  return false;
}

}  // namespace

unsigned default_threads(const fs::path& root) {
  std::optional<double> quota;
  std::ifstream membership(root / "proc/self/cgroup");
  const fs::path mount = root / "sys/fs/cgroup";
  for (std::string line; std::getline(membership, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      take_smallest(mount, group, quota_v2, quota);
      take_smallest(mount / "unified", group, quota_v2, quota);
    } else if (lists(controllers, "cpu")) {
      take_smallest(mount / "cpu", group, quota_v1, quota);
      if (controllers != "cpu") take_smallest(mount / controllers, group, quota_v1, quota);
    }
  }
  const unsigned cpus = affinity();
  if (!quota) return cpus;
  return std::clamp(static_cast<unsigned>(std::ceil(std::min(*quota, 1e6))), 1U, cpus);
}

}  // namespace headrace::server::config
