#include "server/verbs/machine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "clientlib/base/human.h"
#include "clientlib/ring/segment.h"
#include "clientlib/ring/unique_fd.h"
#include "server/config/cpus.h"
#include "server/session/descriptors.h"

namespace headrace::server::verbs {
namespace {

namespace fs = std::filesystem;

/// The file's text, without the line feed at its end; empty: it cannot be read.
std::string content_of(const fs::path& path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

Finding kernel() {
  utsname name{};
  ::uname(&name);
  const std::string found = fmt::format("{} {}", name.sysname, name.release);
  const ring::UniqueFd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  const ring::UniqueFd memory(static_cast<int>(::syscall(SYS_memfd_create, "headrace-doctor", 0)));
  if (self && memory) return good("kernel", found);
  return {"kernel", Health::kBroken,
          found + fmt::format(": {} is not available", self ? "memfd_create" : "pidfd_open"),
          "use Linux 5.3 or later, and allow this system call in the container's seccomp profile"};
}

Finding cpus() {
  const unsigned count = config::default_threads();
  return good("CPUs",
              fmt::format("{} for this process (affinity and cgroup); the default of server.threads", count));
}

Finding load() {
  double load = 0;
  if (::getloadavg(&load, 1) != 1) return good("CPU load", "unknown");
  const auto online = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  const std::string found =
      fmt::format("on average, {:.1f} threads ran or waited in the last minute; this machine has {:.0f} CPUs",
                  load, online);
  if (load < online) return good("CPU load", found);
  return {
      "CPU load", Health::kPoor, found,
      "if those programs still run, a server competes with them: `headrace bench CONFIG --advise` measures "
      "what is left"};
}

Finding memory() {
  constexpr std::uint64_t kLittle = 1'000'000'000;
  const ring::MemoryHeadroom room = ring::memory_headroom();
  const std::string found = fmt::format("{} available ({})", human_bytes(room.bytes), room.limited_by);
  if (room.bytes >= kLittle) return good("memory", found);
  return {"memory", Health::kPoor, found,
          "rings and caches need memory: raise the limit, or end other processes; `headrace check CONFIG` "
          "says how much"};
}

Finding descriptors() {
  constexpr rlim_t kEnough = 1024;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string found =
      fmt::format("{} (the server raises its soft limit to the hard one)", limit.rlim_max);
  if (limit.rlim_max >= kEnough) return good("open files", found);
  const bool none = limit.rlim_max < static_cast<rlim_t>(session::kLeastDescriptors);
  return {"open files", none ? Health::kBroken : Health::kPoor, found,
          fmt::format("raise the limit to {} or more (ulimit -Hn, --ulimit nofile of a container)", kEnough)};
}

/// The lowest pids.max of this process's cgroups (v2); nullopt: there is none.
std::optional<std::uint64_t> most_threads_of_cgroup() {
  const std::string line = content_of("/proc/self/cgroup");  // "0::/path", as this namespace sees it
  const auto at = line.rfind("0::");
  const fs::path root = "/sys/fs/cgroup";
  std::optional<std::uint64_t> least;
  for (fs::path group = root / (at == std::string::npos ? "" : line.substr(at + 4));;
       group = group.parent_path()) {
    const std::string text = content_of(group / "pids.max");
    std::uint64_t most = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), most).ec == std::errc())
      least = std::min(least.value_or(most), most);
    if (group == root || !group.has_relative_path()) return least;
  }
}

Finding threads() {
  constexpr std::uint64_t kBeside = 64;  // threads of HTTP, sessions and ZeroMQ, and some for other processes
  rlimit limit{};
  ::getrlimit(RLIMIT_NPROC, &limit);
  std::optional<std::uint64_t> most = most_threads_of_cgroup();
  std::string what = "pids.max of the cgroup";
  const bool applies = ::geteuid() != 0 && limit.rlim_cur != RLIM_INFINITY;  // root has no limit of its own
  if (applies && limit.rlim_cur < most.value_or(limit.rlim_cur + 1)) {
    most = limit.rlim_cur;
    what = "ulimit -u, for all processes of this user";
  }
  if (!most) return good("threads", "not limited");
  const std::string found = fmt::format("at most {} ({})", *most, what);
  const std::uint64_t needed = config::default_threads() + kBeside;
  if (*most >= needed) return good("threads", found);
  return {"threads", Health::kPoor, found, fmt::format("raise this limit to {} or more", needed)};
}

/// The chosen one of "always [advise] never"; empty: the file cannot be read.
std::string chosen_in(const fs::path& path) {
  const std::string text = content_of(path);
  const auto begin = text.find('['), end = text.find(']');
  return begin == std::string::npos || end == std::string::npos ? ""
                                                                : text.substr(begin + 1, end - begin - 1);
}

Finding huge_pages() {
  constexpr const char* kFile = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const std::string mode = chosen_in(kFile);
  const std::string found = mode.empty() ? "unknown for shared memory" : mode + " for shared memory";
  if (mode == "advise" || mode == "always" || mode == "within_size" || mode == "force")
    return good("huge pages", found);
  return {
      "huge pages", Health::kPoor, found,
      fmt::format("rings work with small pages, but cost more CPU time; as root: echo advise > {}", kFile)};
}

Finding gpu() {
  const std::string driver = content_of("/proc/driver/nvidia/version");
  std::error_code error;
  if (driver.empty())
    return good("GPU",
                "no NVIDIA driver here: trainers get batches in host memory (the server needs no GPU)");
  std::size_t usable = 0, all = 0;
  for (fs::directory_iterator entry("/proc/driver/nvidia/gpus", error), end; !error && entry != end;
       entry.increment(error), ++all) {
    const ring::UniqueFd device(::open(fmt::format("/dev/nvidia{}", all).c_str(), O_RDWR | O_CLOEXEC));
    usable += device ? 1 : 0;
  }
  const std::string found = fmt::format("{} of {} can be opened by this user; {}", usable, all,
                                        driver.substr(0, driver.find('\n')));
  if (usable > 0) return good("GPU", found);
  return {"GPU", Health::kPoor, found,
          "trainers need access to /dev/nvidia*: run their containers with --gpus, or ask for the device's "
          "group"};
}

Finding pinning() {
  constexpr rlim_t kEnough = rlim_t{1} << 30;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  const std::string found =
      unlimited ? "locked memory is not limited"
                : fmt::format("at most {} of locked memory (ulimit -l)", human_bytes(limit.rlim_cur));
  if (unlimited || limit.rlim_cur >= kEnough || content_of("/proc/driver/nvidia/version").empty())
    return good("pinning", found);
  return {"pinning", Health::kPoor, found,
          "some drivers count pinned rings: if a loader warns that it cannot pin the ring, raise `ulimit -l` "
          "for trainers"};
}

}  // namespace

std::vector<Finding> judge_machine() {
  return {kernel(), cpus(), load(), memory(), descriptors(), threads(), huge_pages(), gpu(), pinning()};
}

}  // namespace headrace::server::verbs
