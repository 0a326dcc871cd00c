#include "server/status/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "clientlib/client/delay_reason.h"
#include "server/status/advice.h"
#include "server/status/growth.h"

namespace headrace::server::status {
namespace {

using nlohmann::json;

/// From this part of the time on, a trainer's waits are worth a sentence.
constexpr double kWaits = 0.1;
/// From this part of the time on, a full ring means that the trainers are slower than the server.
constexpr double kBlocked = 0.5;
/// From this part of their time on, the workers have no more to give.
constexpr double kBusy = 0.8;

double part(double of, double whole) {
  return whole > 0 ? std::clamp(of / whole, 0.0, 1.0) : 0.0;
}

std::string percent(double part) {
  return fmt::format("{:.0f}%", 100 * part);
}

std::string name_of_client(const json& client) {
  return client.at("client").get<std::string>();
}

/// The client that is farthest behind; if several are, the first one.
std::string slowest(const json& stream) {
  const json& clients = stream.at("clients");
  const auto found = std::max_element(clients.begin(), clients.end(), [](const json& a, const json& b) {
    return a.at("sharing_lag").get<std::uint64_t>() < b.at("sharing_lag").get<std::uint64_t>();
  });
  return name_of_client(*found);
}

Resources resources(const json& now, const json& stream) {
  const json size = stream.value("decoded_cache_bytes", json());
  const auto workers = now.at("workers").get<std::uint64_t>();
  return {size.is_number() ? std::optional(size.get<std::uint64_t>()) : std::nullopt,
          now.value("memory_available", std::uint64_t{0}), workers, now.value("cpus", workers)};
}

/// The workers are the bottleneck. `waits`: "`NAME` waited 80% of the last minute"
std::string workers_are_slow(const std::string& waits, double busy, const json& now, const json& stream,
                             const json& before) {
  const auto [stage, share] = busiest_stage(stage_fractions(stream, before));
  const auto workers = now.at("workers").get<std::uint64_t>();
  const std::string slow = fmt::format(
      "The bottleneck is {}: trainer {}, and {} busy {} of the time", stage ? doing(stage) : "the workers",
      waits, workers == 1 ? "the worker was" : fmt::format("the {} workers were", workers), percent(busy));
  if (!stage) return slow + ". Give the server more CPUs.";  // pixels are only moved
  return fmt::format("{}, {} of it {}. {}", slow, percent(share), doing(stage),
                     remedy(stage, resources(now, stream)));
}

/// Why the client waits for other clients; empty: it does not.
std::string reason_to_wait(const json& stream, const json& client) {
  const json& next = client.at("next");
  return client::reason_in_stats(
      stream,
      {.epoch = next.at("epoch").get<std::uint64_t>(), .batch = next.at("batch").get<std::uint64_t>()}, "It");
}

std::string of_the_last(double seconds) {
  return std::lround(seconds) >= 58 ? "of the last minute" : fmt::format("of the last {:.0f} s", seconds);
}

}  // namespace

Finding finding(const std::string& name, const json& now, const json& before, double seconds) {
  const json& stream = now.at("streams").at(name);
  const json& past = stream_in(before, name);
  if (const json& failed = stream.at("failed"); failed.is_object())
    return {Severity::kProblem, failed.at("message").get<std::string>()};
  const json& clients = stream.at("clients");
  if (clients.empty()) return {Severity::kFine, "No trainer is attached."};
  if (stream.at("awaited_clients").get<std::uint64_t>() > 0)
    return {Severity::kNotice, client::reason_in_stats(stream, {}) + "."};

  if (seconds < kFewestSeconds)
    return {Severity::kFine, "It is too early to name a bottleneck. Look again in a few seconds."};

  const json* waiting = &clients.front();
  double most = -1;
  for (const json& client : clients) {
    const double waited = growth(client, client_in(past, name_of_client(client)), "wait_seconds");
    if (waited > most) most = waited, waiting = &client;
  }
  const double waited = part(most, seconds);
  const double blocked = part(growth(stream, past, "blocked_seconds"), seconds);
  const auto workers = now.at("workers").get<std::uint64_t>();
  const double busy = part(growth(now, before, "busy_seconds"), seconds * static_cast<double>(workers));
  const std::string when = of_the_last(seconds);

  if (waited >= kWaits) {
    const std::string waits =
        fmt::format("`{}` waited {} {}", name_of_client(*waiting), percent(waited), when);
    const std::string reason = reason_to_wait(stream, *waiting);
    const bool yields = waiting->value("waits_for_one_behind", false);
    if (!reason.empty() && (yields || busy < kBusy))
      return {Severity::kNotice, fmt::format("Trainer {}. {}.", waits, reason)};
    if (stream.value("live", false))
      return {Severity::kProblem,
              fmt::format("The bottleneck is the process that feeds the stream: trainer {}.", waits)};
    const double no_cpu =
        part(growth(now, before, "cpu_wait_seconds"), seconds * static_cast<double>(workers));
    if (busy >= kBusy && no_cpu >= kCrowded)
      return {Severity::kProblem, fmt::format("The bottleneck is the CPUs: trainer {}, and {}.", waits,
                                              waits_for_cpus(no_cpu, resources(now, stream)))};
    if (busy >= kBusy) return {Severity::kProblem, workers_are_slow(waits, busy, now, stream, past)};
    const bool reads = growth(object_in(stream, "read_ahead"), object_in(past, "read_ahead"), "wait") > 0;
    return {Severity::kNotice,
            fmt::format("Trainer {}, but the workers were busy for only {} of the time: {}.", waits,
                        percent(busy), make_more_ahead(reads))};
  }
  if (blocked >= kBlocked)
    return {Severity::kFine, fmt::format("Data is no bottleneck: the server waited for trainer `{}` {} {}.",
                                         slowest(stream), percent(blocked), when)};
  return {Severity::kFine, fmt::format("Server and trainers keep pace: no trainer waited more than {} {}.",
                                       percent(waited), when)};
}

}  // namespace headrace::server::status
