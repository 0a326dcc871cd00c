// The keys of `server`.
#include <fmt/format.h>
#include <sys/un.h>

#include "server/config/cpus.h"
#include "server/config/read.h"
#include "server/described/described.h"

namespace headrace::server::config {

using namespace described;

namespace {

Codec<std::vector<std::uint32_t>> ids() {
  return named("ids", expecting("a list of numbers, such as [1000, 1001]",
                                list(integer<std::uint32_t>(0, 4'294'967'294))));
}

Description<AllowedUsers> allowed_users() {
  return {"",
          "Users that may attach, besides the server's own user and root. They may read every stream. They "
          "can write to its ring only with `ring.data_access: read_write`. Only the server's user and root "
          "may drain or feed the server.",
          {key("uids", &AllowedUsers::uids, ids(), "User ids."),
           key("gids", &AllowedUsers::gids, ids(), "Group ids: primary or supplementary.")}};
}

const Words<log::Level>& words_of(log::Level) {
  static const Words<log::Level> all{{"trace", log::Level::kTrace}, {"debug", log::Level::kDebug},
                                     {"info", log::Level::kInfo},   {"warning", log::Level::kWarning},
                                     {"error", log::Level::kError}, {"off", log::Level::kOff}};
  return all;
}

const Words<ImagesFor>& words_of(ImagesFor) {
  static const Words<ImagesFor> all{{"admitted", ImagesFor::kAdmitted},
                                    {"everybody", ImagesFor::kEverybody},
                                    {"nobody", ImagesFor::kNobody}};
  return all;
}

/// A number, or `auto`, which is stored as 0.
Codec<unsigned> thread_count() {
  const auto chosen = word<unsigned>({{"auto", 0}});
  const auto number = integer<unsigned>(1, 4096);
  return any_of<unsigned>({{chosen, [](const Json& value) { return value.is_string(); }},
                           {number, [](const Json& value) { return value.is_number(); }}});
}

Codec<std::chrono::milliseconds> eviction() {
  return checked<std::chrono::milliseconds>(duration(), [](std::chrono::milliseconds time) {
    return time < std::chrono::seconds{1}
               ? "is too short: clients send a heartbeat twice a second; expected at least 1s"
               : "";
  });
}

/// A map, or `off`, which is stored as none.
Codec<std::optional<MetricsConfig>> metrics_or_off() {
  using Maybe = std::optional<MetricsConfig>;
  const auto off = converted<Maybe, bool>(
      word<bool>({{"off", false}}), [](bool) { return Maybe(); }, [](const Maybe&) { return false; });
  const auto on = converted<Maybe, MetricsConfig>(
      object<MetricsConfig>(), [](const MetricsConfig& config) { return Maybe(config); },
      [](const Maybe& config) { return config.value_or(MetricsConfig{}); });
  return any_of<Maybe>({{off, [](const Json& value) { return value.is_string(); }},
                        {on, [](const Json& value) { return value.is_object(); }}});
}

}  // namespace

std::string_view name_of(log::Level level) {
  return word_of(words_of(level), level);
}

Description<MetricsConfig> MetricsConfig::description() {
  return {"",
          "",
          {key("address", &MetricsConfig::address, text()),
           key("port", &MetricsConfig::port, integer<std::uint16_t>(0, 65'535), "0: any free port."),
           key("images", &MetricsConfig::images, word(words_of(ImagesFor())),
               "Who sees images of the datasets on the status page. admitted: on this machine, the server's "
               "user, root, and `server.allow.uids`; everybody: everyone who can reach the port; nobody: no "
               "one.")}};
}

Description<ServerConfig> ServerConfig::description() {
  using Self = ServerConfig;
  return {
      "",
      "",
      {without_default(key("directory", &Self::directory, path(),
                           "Directory of the sockets. Default: $XDG_RUNTIME_DIR/headrace, or "
                           "/tmp/headrace-<uid>.")),
       without_default(key("allow", &Self::allow, object(allowed_users()))),
       key("threads", &Self::threads, thread_count(),
           "Worker threads. auto: the smaller of the cgroup's CPU quota and the number of CPUs in the "
           "affinity mask."),
       key("numa", &Self::numa, word<Numa>({{"auto", Numa::kAuto}, {"off", Numa::kOff}}),
           "auto: with several NUMA nodes, each worker stays on one node, and shared memory is "
           "interleaved over these nodes; off: the kernel decides."),
       key("seccomp", &Self::seccomp, word<Seccomp>({{"auto", Seccomp::kAuto}, {"off", Seccomp::kOff}}),
           "auto: refuse system calls that a server never makes, and log their names; if the kernel has no "
           "seccomp, log a warning and run without. off: allow all system calls."),
       without_default(
           key("metrics", &Self::metrics, metrics_or_off(),
               "Where the status page, /metrics, /healthz and /readyz are served; off: nowhere.")),
       key("evict_after", &Self::evict_after, eviction(),
           "A client without a heartbeat for this long is fenced: it is granted no more batches."),
       key("group_grace", &Self::group_grace, duration(),
           "How long a group is remembered after its last rank detached."),
       key("drain_timeout", &Self::drain_timeout, duration(),
           "How long the server waits for leases to be released after SIGTERM. With the default, the "
           "server exits within 5 s."),
       key("log_level", &Self::log_level, word(words_of(log::Level()))),
       key("log_format", &Self::log_format,
           word<log::Format>({{"text", log::Format::kText}, {"json", log::Format::kJson}}),
           "json: each line is an object with time, level and message.")}};
}

ServerConfig read_server(const Json& value, const Reading& reading, const Environment& environment) {
  ServerConfig out;
  read_into(out, value, reading);
  if (out.directory.empty()) out.directory = default_directory(environment);
  const auto longest = (out.directory / "control.sock").string().size();
  constexpr std::size_t kRoom = sizeof(sockaddr_un::sun_path) - 1;
  if (longest > kRoom)
    reading.wrong("directory",
                  fmt::format("\"{}\" is too long: the path of a socket in it has {} bytes, and {} are "
                              "possible",
                              out.directory.string(), longest, kRoom));
  if (out.threads == 0) out.threads = default_threads();
  return out;
}

}  // namespace headrace::server::config
