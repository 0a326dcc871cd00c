// `headrace bench`: measures how fast this machine builds a stream's batches, and what handing them to
// clients adds.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "clientlib/ring/segment.h"
#include "server/config/choose_stream.h"
#include "server/config/cpus.h"
#include "server/log/log.h"
#include "server/publish/ledger.h"
#include "server/status/advice.h"
#include "server/verbs/measure.h"
#include "server/verbs/scratch.h"
#include "server/verbs/transform_costs.h"
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

/// Below this part of their time, the workers are not what limits a stream.
constexpr double kIdle = 0.5;

constexpr double kSecondsPerTransform = 1;

/// The run with the fewest clients. REQUIRES: at least one run.
const json& least_disturbed(const json& runs) {
  return *std::min_element(runs.begin(), runs.end(), [](const json& a, const json& b) {
    return a.at("clients").get<unsigned>() < b.at("clients").get<unsigned>();
  });
}

/// The part of the workers' time that no stage took.
double other_share(const json& run) {
  double other = 1;
  for (const json& part : run.at("stage_share")) other -= part.get<double>();
  return other;
}

/// Empty: none, because the workers mostly wait, have no CPU or do something else.
std::string limiting_stage(const json& run) {
  const auto [stage, share] = status::busiest_stage(run.at("stage_share"));
  const bool works =
      run.at("busy").get<double>() >= kIdle && run.at("cpu_wait").get<double>() < status::kCrowded;
  const bool limits = stage && share >= other_share(run) && works;
  return limits ? stage : "";
}

status::Resources resources(const json& run) {
  const json size = run.at("decoded_cache_bytes");
  return {size.is_number() ? std::optional(size.get<std::uint64_t>()) : std::nullopt,
          ring::memory_headroom().bytes, run.at("workers").get<std::uint64_t>(), config::default_threads()};
}

/// Says how a run with more clients differs from `rate`, and why; empty if they hardly differ.
std::string compare(const json& run, double rate) {
  constexpr double kMuch = 0.1, kSomeCpu = 0.1;
  const auto clients = run.at("clients").get<unsigned>();
  const auto rate_with_clients = run.at("samples_per_second").get<double>();
  const std::string made = fmt::format("With {} client{} on the same CPUs, it makes {:.0f} samples/s",
                                       clients, clients == 1 ? "" : "s", rate_with_clients);
  if (rate_with_clients > (1 + 2 * kMuch) * rate)
    return made + ", so something slowed the first run. Measure again with a longer `--seconds`.\n";
  if (rate_with_clients >= (1 - kMuch) * rate) return {};
  const auto wait = run.at("cpu_wait").get<double>();
  if (wait < status::kCrowded) return made + ".\n";
  const double client_cpus = run.at("client_cpu_us_per_batch").get<double>() * 1e-6 *
                             run.at("batches_per_second").get<double>() * clients;
  return client_cpus < kSomeCpu ? fmt::format("{}: {}.\n", made, status::waits_for_cpus(wait, resources(run)))
                                : made + ": clients and workers compete for them.\n";
}

/// Says that other processes took the workers' CPUs during the run; empty if they did not.
std::string crowded(const json& run) {
  const auto wait = run.at("cpu_wait").get<double>();
  if (wait < status::kCrowded) return {};
  return fmt::format("{}. These figures are too low: free the CPUs, then measure again.\n",
                     status::waits_for_cpus(wait, resources(run)));
}

/// Sentences that name the limit of the stream and a remedy. REQUIRES: at least one run.
std::string advice(const json& runs, const std::string& stream) {
  const json& run = least_disturbed(runs);
  const auto rate = run.at("samples_per_second").get<double>();
  const std::string stage = limiting_stage(run);
  std::string text = fmt::format(
      "Stream {} makes {:.0f} samples/s with {} worker{}. A faster trainer waits for batches.\n", stream,
      rate, run.at("workers").get<unsigned>(), run.at("workers").get<unsigned>() == 1 ? "" : "s");
  const std::string no_cpu = crowded(run);
  if (!no_cpu.empty()) {
    text += "The bottleneck is the CPUs: " + no_cpu;
  } else if (const auto busy = run.at("busy").get<double>(); busy < kIdle) {
    text += fmt::format("The workers were busy for only {:.0f}% of the time: {}.\n", 100 * busy,
                        status::make_more_ahead(run.at("reads_ahead").get<bool>()));
  } else if (stage.empty()) {
    text += fmt::format(
        "The workers spend {:.0f}% of their time on neither reading, decoding nor transforming: they fill "
        "caches, which ends with the first epoch, and hand over batches. Raise `batch_size`, so that fewer "
        "are handed over.\n",
        100 * other_share(run));
  } else {
    const auto share = run.at("stage_share").at(stage).get<double>();
    text += fmt::format(
        "The bottleneck is {}: it takes {:.0f}% of the workers' time. Without it, the stream could make up "
        "to {:.0f} samples/s. {}\n",
        status::doing(stage), 100 * share, rate / std::max(0.01, 1 - share),
        status::remedy(stage, resources(run)));
  }
  if (!no_cpu.empty()) return text;
  for (const json& with : runs)
    if (with.at("clients") > run.at("clients")) {
      const std::string slower = compare(with, rate);
      text += slower;
      if (!slower.empty()) break;
    }
  return text;
}

/// The exit code after an error of a run.
int failed(const Error& error) {
  if (error.code != ErrorCode::kDraining) return report(error);
  fmt::print(stderr, "headrace: interrupted\n");
  return 130;
}

/// Empty: no transform costs anything.
std::string describe(const TransformCosts& costs) {
  constexpr std::size_t kMostNamed = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMostNamed, costs.dearest.size()); ++i)
    text += fmt::format("{}{} saves {:.0f}", i == 0 ? "Leaving out " : ", ", costs.dearest[i].name,
                        costs.dearest[i].us);
  if (!text.empty()) text += fmt::format(" of {:.0f} us of CPU time per sample.\n", costs.all_us);
  return text;
}

json to_json(const TransformCosts& costs) {
  json out = json::array();
  for (const TransformCosts::One& one : costs.dearest)
    out.push_back({{"name", one.name}, {"cpu_us_per_sample", one.us}});
  return out;
}

int bench(const BenchArguments& arguments) {
  auto config = arguments.config.load();
  if (!config) return report(config.error());
  reserve_stop_signals();
  const auto stream = config::choose_stream(*config, arguments.stream);
  if (!stream) return report(stream.error());
  // A separate server for the bench: its own directory, one stream, no HTTP port, as many lanes as clients.
  const auto folder = ScratchFolder::make("headrace-bench-");
  if (!folder) return report(folder.error());
  config->server.directory = folder->path();
  config->server.metrics.reset();
  config->server.drain_timeout = std::chrono::milliseconds(500);
  std::erase_if(config->streams, [&](const auto& entry) { return entry.first != *stream; });
  config->streams.begin()->second.sharing.wait_for = 1;

  json runs = json::array();
  log::set_level(log::Level::kWarning);  // for the first run: measure() leaves only errors
  for (const unsigned clients : arguments.clients) {
    config::Config one = *config;
    one.streams.begin()->second.ring.max_clients =
        std::max(one.streams.begin()->second.ring.max_clients, clients);
    auto run = measure(one, *stream, clients, arguments.seconds);
    if (!run) return failed(run.error());
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
  json out{{"stream", *stream}, {"runs", runs}};
  if (arguments.advise) {
    std::string text = advice(runs, *stream);
    const auto tell = [&](const std::string& more) {
      if (!arguments.as_json) fmt::print("{}", more);
      std::fflush(stdout);
    };
    tell("\n" + text);
    // Also if the CPUs are crowded: CPU time hardly depends on it.
    if (const auto stage = status::busiest_stage(least_disturbed(runs).at("stage_share")).first;
        stage && stage == std::string_view("transform")) {
      const auto costs = transform_costs(*config, std::min(kSecondsPerTransform, arguments.seconds));
      if (!costs && costs.error().code == ErrorCode::kDraining) return failed(costs.error());
      if (costs) {
        tell(describe(*costs));
        text += describe(*costs);
        out["transforms"] = to_json(*costs);
      }
    }
    out["advice"] = std::move(text);
  } else if (!arguments.as_json) {
    if (const std::string no_cpu = crowded(least_disturbed(runs)); !no_cpu.empty())
      fmt::print(stderr, "headrace: {}", no_cpu);
  }
  if (arguments.as_json) print_as_json(out);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* verb =
      app.add_subcommand("bench", "Measure the speed and the CPU time of a stream, with and without clients");
  arguments->config.add_to(*verb);
  verb->add_option("--stream", arguments->stream, "The stream to measure" + std::string(kDefaultStream));
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
