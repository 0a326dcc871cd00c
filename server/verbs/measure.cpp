#include "server/verbs/measure.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "clientlib/ring/futex.h"
#include "headrace/client.h"
#include "server/log/log.h"
#include "server/session/server.h"
#include "server/session/stream_snapshot.h"

namespace headrace::server::verbs {
namespace {

double cpu_seconds(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// A client process: consumes batches as fast as they come until it is killed. On a shard stream it is rank
/// `number` of `count`.
[[noreturn]] void consume(const std::string& directory, const std::string& stream, unsigned number,
                          unsigned count) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto client = Client::connect({.address = directory});
  const auto streams = client ? client->streams() : fail(client.error());
  if (streams) {
    OpenOptions options{
        .stream = stream, .client = fmt::format("bench-{}", number), .join = Join::kNow, .for_device = true};
    for (const StreamInfo& info : *streams)
      if (info.name == stream && info.delivery == Delivery::kShard) {
        options.rank = number;
        options.world_size = count;
        options.join = Join::kDefault;  // ranks begin at one cursor
      }
    auto opened = client->open(options);
    while (opened)
      if (auto batch = opened->next(); !batch) break;
  }
  ::_exit(1);
}

/// The child processes are forked before the server has threads; each waits at the pipe until the server is
/// up.
struct Consumers {
  std::vector<pid_t> pids;
  int gate[2] = {-1, -1};

  /// kEnvironment if not all can be forked; then there are none.
  Result<void> spawn(unsigned count, const std::string& directory, const std::string& stream) {
    const auto refuse = [](const char* what) {
      return fail(ErrorCode::kEnvironment, fmt::format("{} for a client: {}", what, std::strerror(errno)));
    };
    if (::pipe(gate) != 0) return refuse("no pipe");
    for (unsigned i = 0; i < count; ++i) {
      const pid_t pid = ::fork();
      if (pid < 0) {
        auto error = refuse("no process");
        finish();
        return error;
      }
      if (pid == 0) {
        ::close(gate[1]);
        char byte = 0;
        while (::read(gate[0], &byte, 1) > 0) {
        }
        consume(directory, stream, i, count);
      }
      pids.push_back(pid);
    }
    ::close(gate[0]);
    return {};
  }
  void open_gate() { ::close(gate[1]); }
  /// Kills them and returns the CPU seconds that they used.
  double finish() {
    const double before = cpu_seconds(RUSAGE_CHILDREN);
    for (const pid_t pid : pids) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
    pids.clear();
    return cpu_seconds(RUSAGE_CHILDREN) - before;
  }
};

struct Snapshot {
  std::uint64_t ns = ring::monotonic_ns();
  double cpu = cpu_seconds(RUSAGE_SELF);
  std::uint64_t cpu_wait_ns = 0;
  metrics::StreamTotals totals;
};

}  // namespace

Result<nlohmann::json> measure(const config::Config& config, const std::string& stream, unsigned clients,
                               double seconds) {
  std::atomic<bool> ended{false};
  const auto pause = [&](double s) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(s);
    while (!ended && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(
          until - std::chrono::steady_clock::now(), std::chrono::milliseconds(20)));
  };
  Consumers consumers;
  if (auto made = consumers.spawn(clients, config.server.directory, stream); !made)
    return tl::make_unexpected(made.error());
  auto server = session::Server::start(config);
  if (!server) {
    consumers.finish();
    return tl::make_unexpected(server.error());
  }
  exec::Engine& engine = (*server)->engine();
  const auto index = engine.find(stream);
  if (!index) {
    consumers.finish();
    return tl::make_unexpected(index.error());
  }
  if (clients == 0) {
    auto sink = engine.with(*index, [](exec::Stream& s) { return s.lanes().open_sink(); });
    if (!sink) return tl::make_unexpected(sink.error());
  }
  std::thread loop([&] {
    (*server)->run();
    ended = true;
  });
  consumers.open_gate();
  const auto attached = [&] { return engine.stream(*index).status().clients().size(); };
  const std::uint64_t patience = ring::monotonic_ns() + 20'000'000'000;
  const auto& status = engine.stream(*index).status();
  while (!ended && !status.failed() && attached() < std::max(1U, clients) && ring::monotonic_ns() < patience)
    pause(0.01);
  const bool complete = attached() >= std::max(1U, clients);
  pause(status.failed() ? 0 : std::min(1.0, seconds / 4));  // warm caches, steady ring

  Snapshot begin;
  begin.totals = engine.totals(*index);
  begin.cpu_wait_ns = engine.cpu_wait_ns();
  pause(status.failed() ? 0 : seconds);
  Snapshot end;
  end.totals = engine.totals(*index);
  end.cpu_wait_ns = engine.cpu_wait_ns();
  const Error failure = engine.stream(*index).failed() ? engine.stream(*index).failure() : Error{};
  log::set_level(log::Level::kError);  // no warning for each client that is killed now
  const double client_cpu = consumers.finish();
  const auto cache = session::decoded_cache_bytes(engine.stream(*index).maker(), end.totals);
  const bool interrupted = ended;
  (*server)->ask_to_stop();
  loop.join();
  if (interrupted) return fail(ErrorCode::kDraining, "interrupted");
  if (!failure.message.empty()) return fail(failure);
  if (!complete)
    return fail(ErrorCode::kTimeout, fmt::format("not all of {} clients attached within 20 s", clients));

  const double wall = static_cast<double>(end.ns - begin.ns) * 1e-9;
  const double samples = static_cast<double>(end.totals.samples - begin.totals.samples);
  const double batches = static_cast<double>(end.totals.batches - begin.totals.batches);
  if (samples == 0) return fail(ErrorCode::kTimeout, fmt::format("no sample was built in {} s", seconds));
  const double busy = static_cast<double>(end.totals.busy_ns - begin.totals.busy_ns) * 1e-9;
  nlohmann::json stages = nlohmann::json::object();
  for (std::size_t i = 0; i < metrics::kStages; ++i)
    stages[metrics::kStageNames[i]] =
        static_cast<double>(end.totals.stages[i].total_ns - begin.totals.stages[i].total_ns) * 1e-9 /
        std::max(busy, 1e-9);
  return nlohmann::json{
      {"clients", clients},
      {"seconds", wall},
      {"workers", engine.threads()},
      {"samples_per_second", samples / wall},
      {"batches_per_second", batches / wall},
      {"cpu_us_per_sample", (end.cpu - begin.cpu) * 1e6 / samples},
      {"cpu_us_per_batch", (end.cpu - begin.cpu) * 1e6 / std::max(batches, 1.0)},
      {"client_cpu_us_per_batch", clients ? client_cpu * 1e6 / std::max(batches, 1.0) / clients : 0.0},
      {"published_bytes_per_second",
       static_cast<double>(end.totals.published_bytes - begin.totals.published_bytes) / wall},
      {"read_bytes_per_second", static_cast<double>(end.totals.read_bytes - begin.totals.read_bytes) / wall},
      {"busy", busy / (wall * engine.threads())},
      {"cpu_wait",
       static_cast<double>(end.cpu_wait_ns - begin.cpu_wait_ns) * 1e-9 / (wall * engine.threads())},
      {"reads_ahead", engine.stream(*index).maker().read_ahead() != nullptr},
      {"stage_share", stages},
      {"decoded_cache_bytes", cache ? nlohmann::json(*cache) : nlohmann::json()}};
}

}  // namespace headrace::server::verbs
