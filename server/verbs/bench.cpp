// `headrace bench`: measures how fast this machine builds a stream's batches, and what handing them to
// clients adds.
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
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "clientlib/ring/futex.h"
#include "clientlib/ring/segment.h"
#include "headrace/client.h"
#include "server/config/cpus.h"
#include "server/log/log.h"
#include "server/session/server.h"
#include "server/session/stream_snapshot.h"
#include "server/status/advice.h"
#include "server/verbs/scratch.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

using nlohmann::json;

struct BenchArguments {
  ConfigArguments config;
  std::string stream;
  double seconds = 5;
  std::vector<unsigned> clients = {0, 1, 2, 4};
  bool as_json = false, advise = false;
};

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
  metrics::StreamTotals totals;
};

/// kDraining: a signal ended the server.
Result<json> measure(const config::Config& config, const std::string& stream, unsigned clients,
                     double seconds) {
  std::atomic<bool> ended{false};
  const auto pause = [&](double s) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(s);
    while (!ended && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(
          until - std::chrono::steady_clock::now(), std::chrono::milliseconds(20)));
  };
  log::set_level(log::Level::kWarning);
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
  while (!ended && attached() < std::max(1U, clients) && ring::monotonic_ns() < patience) pause(0.01);
  const bool complete = attached() >= std::max(1U, clients);
  pause(std::min(1.0, seconds / 4));  // warm caches, steady ring

  Snapshot begin;
  begin.totals = engine.totals(*index);
  pause(seconds);
  Snapshot end;
  end.totals = engine.totals(*index);
  const Error failure = engine.stream(*index).failed() ? engine.stream(*index).failure() : Error{};
  log::set_level(log::Level::kError);  // without a warning for each client that is killed now
  const double client_cpu = consumers.finish();
  const auto cache = session::decoded_cache_bytes(engine.stream(*index).maker(), end.totals);
  const bool interrupted = ended;
  (*server)->ask_to_stop();
  loop.join();
  if (interrupted) return fail(ErrorCode::kDraining, "interrupted");
  if (!complete)
    return fail(ErrorCode::kTimeout, fmt::format("not all of {} clients attached within 20 s", clients));
  if (!failure.message.empty()) return fail(failure);

  const double wall = static_cast<double>(end.ns - begin.ns) * 1e-9;
  const double samples = static_cast<double>(end.totals.samples - begin.totals.samples);
  const double batches = static_cast<double>(end.totals.batches - begin.totals.batches);
  if (samples == 0) return fail(ErrorCode::kTimeout, fmt::format("no sample was built in {} s", seconds));
  const double busy = static_cast<double>(end.totals.busy_ns - begin.totals.busy_ns) * 1e-9;
  json stages = json::object();
  for (std::size_t i = 0; i < metrics::kStages; ++i)
    stages[metrics::kStageNames[i]] =
        static_cast<double>(end.totals.stages[i].total_ns - begin.totals.stages[i].total_ns) * 1e-9 /
        std::max(busy, 1e-9);
  return json{
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
      {"reads_ahead", engine.stream(*index).maker().read_ahead() != nullptr},
      {"stage_share", stages},
      {"decoded_cache_bytes", cache ? json(*cache) : json()}};
}

/// Sentences that name the limit of the stream and a remedy. REQUIRES: at least one run.
std::string advice(const json& runs, const std::string& stream) {
  const json& run = *std::min_element(runs.begin(), runs.end(), [](const json& a, const json& b) {
    return a.at("clients").get<unsigned>() < b.at("clients").get<unsigned>();
  });
  const auto rate = run.at("samples_per_second").get<double>();
  const auto [stage, share] = status::busiest_stage(run.at("stage_share"));
  double other = 1;
  for (const json& part : run.at("stage_share")) other -= part.get<double>();
  std::string text = fmt::format(
      "Stream {} makes {:.0f} samples/s with {} worker{}. A faster trainer waits for batches.\n", stream,
      rate, run.at("workers").get<unsigned>(), run.at("workers").get<unsigned>() == 1 ? "" : "s");
  if (const auto busy = run.at("busy").get<double>(); busy < status::kBusy) {
    text += fmt::format("The workers were busy for only {:.0f}% of the time: {}.\n", 100 * busy,
                        status::make_more_ahead(run.at("reads_ahead").get<bool>()));
  } else if (!stage || other > share) {
    text += fmt::format(
        "The workers spend {:.0f}% of their time on neither reading, decoding nor transforming: they fill "
        "caches, which ends with the first epoch, and hand over batches. Raise `batch_size`, so that fewer "
        "are handed over.\n",
        100 * other);
  } else {
    const json size = run.at("decoded_cache_bytes");
    const status::Resources server{size.is_number() ? std::optional(size.get<std::uint64_t>()) : std::nullopt,
                                   ring::memory_headroom().bytes, run.at("workers").get<std::uint64_t>(),
                                   config::default_threads()};
    text += fmt::format(
        "The bottleneck is {}: it takes {:.0f}% of the workers' time. Without it, the stream could make up "
        "to {:.0f} samples/s. {}\n",
        status::doing(stage), 100 * share, rate / std::max(0.01, 1 - share), status::remedy(stage, server));
  }
  for (const json& with : runs)
    if (with.at("clients") > run.at("clients") && with.at("samples_per_second").get<double>() < 0.9 * rate) {
      text += fmt::format(
          "With {} client{} on the same CPUs, it makes {:.0f} samples/s: clients and workers compete "
          "for them.\n",
          with.at("clients").get<unsigned>(), with.at("clients").get<unsigned>() == 1 ? "" : "s",
          with.at("samples_per_second").get<double>());
      break;
    }
  return text;
}

int bench(const BenchArguments& arguments) {
  auto config = arguments.config.load();
  if (!config) return report(config.error());
  reserve_stop_signals();
  if (!config->streams.contains(arguments.stream)) {
    std::string names;
    for (const auto& [name, stream] : config->streams) names += (names.empty() ? "" : ", ") + name;
    return report({ErrorCode::kNoSuchStream,
                   fmt::format("no stream `{}`; expected one of: {}", arguments.stream, names)});
  }
  // A separate server for the bench: its own directory, one stream, no HTTP port, as many lanes as clients.
  const auto folder = ScratchFolder::make("headrace-bench-");
  if (!folder) return report(folder.error());
  config->server.directory = folder->path();
  config->server.metrics.reset();
  config->server.drain_timeout = std::chrono::milliseconds(500);
  std::erase_if(config->streams, [&](const auto& entry) { return entry.first != arguments.stream; });
  config->streams.begin()->second.sharing.wait_for = 1;

  json runs = json::array();
  int exit_code = 0;
  for (const unsigned clients : arguments.clients) {
    config::Config one = *config;
    one.streams.begin()->second.ring.max_clients =
        std::max(one.streams.begin()->second.ring.max_clients, clients);
    auto run = measure(one, arguments.stream, clients, arguments.seconds);
    if (!run) {
      exit_code = report(run.error());
      if (run.error().code == ErrorCode::kDraining) exit_code = 130;
      break;
    }
    if (!arguments.as_json) {
      if (runs.empty())
        fmt::print("{:>8} {:>12} {:>14} {:>16} {:>12} {:>7} {:>7} {:>9}\n", "clients", "samples/s",
                   "CPU us/sample", "client us/batch", "MB/s out", "read", "decode", "transform");
      const json& r = *run;
      fmt::print("{:>8} {:>12.0f} {:>14.2f} {:>16.2f} {:>12.1f} {:>6.1f}% {:>6.1f}% {:>8.1f}%\n", clients,
                 r["samples_per_second"].get<double>(), r["cpu_us_per_sample"].get<double>(),
                 r["client_cpu_us_per_batch"].get<double>(),
                 r["published_bytes_per_second"].get<double>() / 1e6,
                 100 * r["stage_share"]["read"].get<double>(), 100 * r["stage_share"]["decode"].get<double>(),
                 100 * r["stage_share"]["transform"].get<double>());
      std::fflush(stdout);
    }
    runs.push_back(std::move(*run));
  }
  if (exit_code != 0) return exit_code;
  json out{{"stream", arguments.stream}, {"runs", runs}};
  if (arguments.advise) out["advice"] = advice(runs, arguments.stream);
  if (arguments.as_json)
    print_as_json(out);
  else if (arguments.advise)
    fmt::print("\n{}", out["advice"].get<std::string>());
  return exit_code;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* verb =
      app.add_subcommand("bench", "Measure the speed and the CPU time of a stream, with and without clients");
  arguments->config.add_to(*verb);
  verb->add_option("--stream", arguments->stream, "The stream to measure")->required();
  verb->add_option("--seconds", arguments->seconds, "Length of each run (default: 5)")
      ->check(CLI::Range(0.1, 3600.0));
  verb->add_option("--clients", arguments->clients,
                   "Numbers of client processes, one for each run (default: 0,1,2,4)")
      ->delimiter(',')
      ->check(CLI::Range(0U, publish::Ledger::kMaxLanes));
  verb->add_flag("--advise", arguments->advise, "Also say what limits the stream, and what to change");
  add_json(*verb, arguments->as_json);
  verb->callback([arguments, &exit_code] { exit_code = bench(*arguments); });
}

}  // namespace headrace::server::verbs
