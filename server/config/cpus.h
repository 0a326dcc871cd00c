// How many threads this process may keep busy.
#pragma once

#include <filesystem>

namespace headrace::server::config {

/// min(CPUs in the affinity mask, ceil(cgroup quota / period)) over this process's cgroup and its ancestors,
/// v1 or v2; at least 1. `root` is prepended to /proc and /sys: for tests.
unsigned default_threads(const std::filesystem::path& root = "/");

}  // namespace headrace::server::config
