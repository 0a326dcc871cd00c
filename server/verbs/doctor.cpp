// `headrace doctor`: whether this machine, and a configuration's data, are fit for a server.
#include <fcntl.h>
#include <fmt/color.h>
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
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "clientlib/ring/segment.h"
#include "clientlib/ring/unique_fd.h"
#include "server/config/cpus.h"
#include "server/log/sink.h"
#include "server/metrics/http.h"
#include "server/session/assemble.h"
#include "server/session/descriptors.h"
#include "server/session/directory.h"
#include "server/verbs/progress.h"
#include "server/verbs/try_samples.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

namespace fs = std::filesystem;

enum class Health : std::uint8_t { kGood, kPoor, kBroken };

struct Checkup {
  Health health = Health::kGood;
  std::string what, found;
  std::string remedy;  ///< unless good
};

Checkup good(std::string what, std::string found) {
  return {Health::kGood, std::move(what), std::move(found), {}};
}

/// The file's text, without the line feed at its end; empty: it cannot be read.
std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

Checkup kernel() {
  utsname name{};
  ::uname(&name);
  const std::string found = fmt::format("{} {}", name.sysname, name.release);
  const ring::UniqueFd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  const ring::UniqueFd memory(static_cast<int>(::syscall(SYS_memfd_create, "headrace-doctor", 0)));
  if (self && memory) return good("kernel", found);
  return {Health::kBroken, "kernel",
          found + fmt::format(": {} is not available", self ? "memfd_create" : "pidfd_open"),
          "use Linux 5.3 or later, and allow this system call in the container's seccomp profile"};
}

Checkup cpus() {
  const unsigned count = config::default_threads();
  return good("CPUs",
              fmt::format("{} for this process (affinity and cgroup); the default of server.threads", count));
}

Checkup memory() {
  constexpr std::uint64_t kLittle = 1'000'000'000;
  const ring::MemoryHeadroom room = ring::memory_headroom();
  const std::string found = fmt::format("{} available ({})", human_bytes(room.bytes), room.limited_by);
  if (room.bytes >= kLittle) return good("memory", found);
  return {Health::kPoor, "memory", found,
          "rings and caches need memory: raise the limit, or end other processes; `headrace check CONFIG` "
          "says how much"};
}

Checkup descriptors() {
  constexpr rlim_t kEnough = 1024;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string found =
      fmt::format("{} (the server raises its soft limit to the hard one)", limit.rlim_max);
  if (limit.rlim_max >= kEnough) return good("open files", found);
  const bool broken = limit.rlim_max < static_cast<rlim_t>(session::kLeastDescriptors);
  return {broken ? Health::kBroken : Health::kPoor, "open files", found,
          fmt::format("raise the limit to {} or more (ulimit -Hn, --ulimit nofile of a container)", kEnough)};
}

/// The lowest pids.max of this process's cgroups (v2); nullopt: there is none.
std::optional<std::uint64_t> most_threads_of_cgroup() {
  const std::string line = text_of("/proc/self/cgroup");  // "0::/path", as this namespace sees it
  const auto at = line.rfind("0::");
  const fs::path root = "/sys/fs/cgroup";
  std::optional<std::uint64_t> least;
  for (fs::path group = root / (at == std::string::npos ? "" : line.substr(at + 4));;
       group = group.parent_path()) {
    const std::string text = text_of(group / "pids.max");
    std::uint64_t most = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), most).ec == std::errc())
      least = std::min(least.value_or(most), most);
    if (group == root || !group.has_relative_path()) return least;
  }
}

Checkup threads() {
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
  return {Health::kPoor, "threads", found, fmt::format("raise this limit to {} or more", needed)};
}

/// The chosen one of "always [advise] never"; empty: the file cannot be read.
std::string chosen_in(const fs::path& path) {
  const std::string text = text_of(path);
  const auto begin = text.find('['), end = text.find(']');
  return begin == std::string::npos || end == std::string::npos ? ""
                                                                : text.substr(begin + 1, end - begin - 1);
}

Checkup huge_pages() {
  constexpr const char* kFile = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const std::string mode = chosen_in(kFile);
  const std::string found = mode.empty() ? "unknown for shared memory" : mode + " for shared memory";
  if (mode == "advise" || mode == "always" || mode == "within_size" || mode == "force")
    return good("huge pages", found);
  return {
      Health::kPoor, "huge pages", found,
      fmt::format("rings work with small pages, but cost more CPU time; as root: echo advise > {}", kFile)};
}

/// The message says what to do.
Checkup broken(std::string what, const Error& error) {
  return {Health::kBroken, std::move(what), error.message, {}};
}

Checkup directory(const fs::path& path) {
  if (auto usable = session::Directory::check(path); !usable) return broken("directory", usable.error());
  if (session::Directory::is_in_use(path))
    return {Health::kPoor, "directory", fmt::format("a server runs in {} now", path.string()),
            "stop it first (`headrace drain`), or give this one another server.directory and "
            "server.metrics.port"};
  return good("directory", path.string());
}

Checkup port(const config::ServerConfig& server) {
  if (!server.metrics) return good("HTTP port", "off (server.metrics)");
  if (session::Directory::is_in_use(server.directory)) return good("HTTP port", "not tried: a server runs");
  const auto http = metrics::HttpServer::start(server.metrics->address, server.metrics->port, {});
  return http ? good("HTTP port", (*http)->url()) : broken("HTTP port", http.error());
}

Checkup gpu() {
  const std::string driver = text_of("/proc/driver/nvidia/version");
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
  return {Health::kPoor, "GPU", found,
          "trainers need access to /dev/nvidia*: run their containers with --gpus, or ask for the device's "
          "group"};
}

Checkup pinning() {
  constexpr rlim_t kEnough = rlim_t{1} << 30;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  const std::string found =
      unlimited ? "locked memory is not limited"
                : fmt::format("at most {} of locked memory (ulimit -l)", human_bytes(limit.rlim_cur));
  if (unlimited || limit.rlim_cur >= kEnough || text_of("/proc/driver/nvidia/version").empty())
    return good("pinning", found);
  return {
      Health::kPoor, "pinning", found,
      "some drivers count pinned rings: if a loader warns of staged copies, raise `ulimit -l` for trainers"};
}

/// Opens each stream's dataset and makes a few of its samples.
void examine_data(const config::Config& config, std::vector<Checkup>& out) {
  const auto assembly = session::assemble(config);
  if (!assembly) {
    out.push_back(broken("data", assembly.error()));
    return;
  }
  std::uint64_t rings = 0;
  for (const exec::StreamSetup& setup : assembly->streams) {
    const std::string name = fmt::format("stream {}", setup.info.name);
    if (const auto ring = session::ring_size(setup)) rings += ring->first_bytes;
    if (setup.info.live) {
      out.push_back(good(name, "is fed by another process"));
      continue;
    }
    const auto tried = try_samples(setup.info.name, *setup.maker, false, config.server.threads);
    if (!tried)
      out.push_back(broken(name, tried.error()));
    else if (tried->bad > 0)
      out.push_back({tried->bad == tried->tried ? Health::kBroken : Health::kPoor, name,
                     fmt::format("{} of {} samples that were tried are bad, such as {}", tried->bad,
                                 tried->tried, tried->first.front()),
                     "`headrace check --all CONFIG` names all bad samples"});
    else
      out.push_back(good(name, fmt::format("{} samples; {} were tried", setup.info.samples, tried->tried)));
  }
  const bool is_running = session::Directory::is_in_use(config.server.directory);  // it holds its memory now
  if (auto fits = session::check_memory(*assembly, rings); !fits && !is_running)
    out.push_back(broken("memory needed", fits.error()));
  else
    out.push_back(good("memory needed",
                       fmt::format("{} for rings with one trainer each, up to {} for windows and caches",
                                   human_bytes(rings), human_bytes(session::bytes_beside_rings(*assembly)))));
}

void print(const Checkup& one, bool color) {
  const auto [word, shade] = one.health == Health::kGood   ? std::pair("ok", fmt::terminal_color::green)
                             : one.health == Health::kPoor ? std::pair("note", fmt::terminal_color::yellow)
                                                           : std::pair("FAIL", fmt::terminal_color::red);
  fmt::print("{}  {:14} {}\n", color ? fmt::format(fmt::fg(shade), "{:4}", word) : fmt::format("{:4}", word),
             log::escaped(one.what), log::escaped(one.found));
  if (!one.remedy.empty()) fmt::print("{:21}-> {}\n", "", log::escaped(one.remedy));
}

const char* name_of(Health health) {
  return health == Health::kGood ? "ok" : health == Health::kPoor ? "note" : "fail";
}

void print_json(const std::vector<Checkup>& found) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Checkup& one : found)
    checks.push_back(
        {{"check", one.what}, {"result", name_of(one.health)}, {"found", one.found}, {"remedy", one.remedy}});
  print_as_json({{"checks", std::move(checks)}});
}

int doctor(ConfigArguments& arguments, bool as_json) {
  const bool with_data = !arguments.file.empty();
  if (!with_data && !arguments.settings.empty())
    return report(
        {ErrorCode::kInvalidArgument, "--set needs a configuration: headrace doctor FILE --set KEY=VALUE"});
  Result<config::Config> config = with_data ? arguments.load() : config::Config{};
  const std::optional<Error> invalid = config ? std::nullopt : std::optional(config.error());
  if (invalid) config = config::Config{};
  if (invalid || !with_data)
    config->server.directory = config::default_directory(config::process_environment());
  std::vector<Checkup> found = {kernel(),
                                cpus(),
                                memory(),
                                descriptors(),
                                threads(),
                                huge_pages(),
                                directory(config->server.directory),
                                port(config->server),
                                gpu(),
                                pinning()};
  if (invalid)
    found.push_back(broken("configuration", *invalid));
  else if (with_data)
    examine_data(*config, found);
  const auto failed = std::count_if(found.begin(), found.end(),
                                    [](const Checkup& one) { return one.health == Health::kBroken; });
  if (as_json) {
    print_json(found);
    return failed > 0 ? 3 : 0;
  }
  const bool color = ::isatty(STDOUT_FILENO) == 1;
  for (const Checkup& one : found) print(one, color);
  fmt::print("{}\n", failed > 0 ? fmt::format("{} of {} checks failed", failed, found.size())
                                : "a server can run here");
  return failed > 0 ? 3 : 0;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ConfigArguments>();
  auto as_json = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand(
      "doctor",
      "Check memory, limits, the directory, ports and GPUs of this machine, and a configuration's data");
  arguments->add_to(*verb);
  verb->get_option("config")->required(false)->description("Configuration file (YAML): also check its data");
  add_json(*verb, *as_json);
  verb->callback([arguments, as_json, &exit_code] { exit_code = doctor(*arguments, *as_json); });
}

}  // namespace headrace::server::verbs
