#include "server/verbs/fitness.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "clientlib/base/human.h"
#include "clientlib/ring/segment.h"
#include "headrace/client.h"
#include "server/metrics/http.h"
#include "server/session/directory.h"
#include "server/verbs/try_samples.h"

namespace headrace::server::verbs {
namespace {

/// The bytes of a server's rings, windows and caches in memory, from its stats.
std::uint64_t bytes_in_use(const nlohmann::json& stats) {
  constexpr std::uint64_t kNone = 0;
  std::uint64_t sum = 0;
  const nlohmann::json& streams = stats.at("streams");
  for (const nlohmann::json& stream : streams) sum += stream.value("ring_bytes", kNone);
  for (const nlohmann::json& group : stats.at("sharing")) {
    std::uint64_t window = 0;
    for (const nlohmann::json& name : group.at("streams"))
      window = std::max(window, streams.at(name.get<std::string>()).value("window_bytes", kNone));
    sum += window;
  }
  for (const nlohmann::json& cache : stats.at("caches"))
    if (cache.at("kind") != "disk") sum += cache.value("bytes", kNone);
  return sum;
}

/// "5 of 40 samples are bad:" and a line for each of the first ones.
std::string list_of(const TriedSamples& tried, std::uint64_t all) {
  const bool only = tried.bad == tried.tried;
  std::string list = all == 1
                         ? "its only sample is bad"
                         : fmt::format("{} of {}{} {} bad", only ? "all" : std::to_string(tried.bad),
                                       count_of(tried.tried, "sample"),
                                       tried.tried == all ? "" : " that were tried (`check --all` tries all)",
                                       tried.bad == 1 && !only ? "is" : "are");
  list += tried.first.size() < tried.distinct ? fmt::format("; the first {}:", tried.first.size()) : ":";
  for (const std::string& what : tried.first) list += "\n    " + what;
  return list;
}

/// The remedy if a stream has more bad samples than it allows. `stream`: nullptr for an upload stream, which
/// allows none.
std::string remedy_of(const config::StreamConfig* stream, const TriedSamples& tried, std::uint64_t size,
                      double allowed) {
  if (!stream) return "an upload stream allows no bad samples: repair or remove these files";
  if (stream->on_error == config::OnError::kReplace)
    return fmt::format(
        "the stream would fail: its max_bad allows {:.0f}. Repair or remove these files, or raise max_bad",
        std::floor(allowed));
  const bool too_many = static_cast<double>(tried.distinct) > stream->max_bad * static_cast<double>(size);
  return fmt::format(
      "the stream would fail: its on_error is `fail`. Repair or remove these files, or set on_error: "
      "replace{}",
      too_many ? " and raise max_bad" : "");
}

}  // namespace

Error Finding::error() const {
  return {code, remedy.empty() ? found : fmt::format("{}\n  {}", found, remedy)};
}

Finding good(std::string what, std::string found) {
  return {.what = std::move(what), .found = std::move(found)};
}

Finding broken(std::string what, const Error& error) {
  return {std::move(what), Health::kBroken, error.message, {}, error.code};
}

std::optional<RunningServer> RunningServer::find(const std::filesystem::path& directory) {
  constexpr std::chrono::seconds kPatience{3};
  if (!session::Directory::is_in_use(directory)) return std::nullopt;
  RunningServer out{.directory = directory};
  auto client = Client::connect({.address = directory.string(), .timeout = kPatience});
  const auto stats = client ? client->stats() : fail(client.error());
  if (!stats) {
    out.silent = stats.error();
    return out;
  }
  try {
    const auto parsed = nlohmann::json::parse(*stats);
    if (const auto& url = parsed.at("metrics_url"); !url.is_null()) out.metrics_url = url.get<std::string>();
    out.bytes = bytes_in_use(parsed);
  } catch (const nlohmann::json::exception& error) {  // of another version
    out.silent = Error{ErrorCode::kVersionMismatch, error.what()};
  }
  return out;
}

RingBytes rings_of(const assembly::Assembly& assembly) {
  RingBytes sum;
  for (const exec::StreamSetup& setup : assembly.streams)
    if (const auto ring = assembly::ring_size(setup)) {
      sum.first += ring->first_bytes;
      sum.most += ring->most();
    }
  return sum;
}

ring::MemoryHeadroom room_without(const std::optional<RunningServer>& running) {
  ring::MemoryHeadroom room = ring::memory_headroom("", running ? running->bytes : 0);
  if (running && !running->silent) room.limited_by += ", without the running server";
  return room;
}

Finding judge_memory(const assembly::Assembly& assembly, const std::optional<RunningServer>& running) {
  const std::string what = "memory needed";
  const RingBytes rings = rings_of(assembly);
  const ring::MemoryHeadroom room = room_without(running);
  if (const auto fits = assembly::check_memory(assembly, rings.first, room); !fits) {
    if (!running || !running->silent) return broken(what, fits.error());
    return {what, Health::kUnknown,
            fmt::format("not judged: the server in {} did not say how much it uses ({}), and beside it, {}",
                        running->directory.string(), running->silent->message, fits.error().message),
            "try again when that server answers `headrace health`, or has stopped"};
  }
  if (const std::string lacking = assembly::short_of_memory(assembly, room); !lacking.empty())
    return {what, Health::kPoor, lacking, {}};
  // While clients of a dead server still hold its ring, the next server's ring exists beside it.
  const std::uint64_t beside = assembly::bytes_beside_rings(assembly);
  if (const std::uint64_t restart = 2 * rings.most + beside; restart > room.bytes)
    return {what, Health::kPoor,
            fmt::format("a restart while all clients are attached needs {}, {} are available ({})",
                        human_bytes(restart), human_bytes(room.bytes), room.limited_by),
            "lower ring.max_clients or ring.prefetch"};
  const std::string more =
      beside > 0 ? fmt::format(", up to {} for windows and caches", human_bytes(beside)) : "";
  return good(what, fmt::format("{} for rings with one trainer each{}; {} available ({})",
                                human_bytes(rings.first), more, human_bytes(room.bytes), room.limited_by));
}

Finding judge_directory(const config::ServerConfig& server, const std::optional<RunningServer>& running) {
  if (const auto usable = session::Directory::check(server.directory); !usable)
    return broken("directory", usable.error());
  if (!running) return good("directory", server.directory.string());
  return {"directory", Health::kPoor, fmt::format("a server runs in {} now", server.directory.string()),
          "to replace it, stop it first (`headrace drain`); another server needs a server.directory and a "
          "server.metrics.port of its own"};
}

Finding judge_port(const config::ServerConfig& server, const std::optional<RunningServer>& running) {
  const std::string what = "HTTP port";
  if (!server.metrics) return good(what, "off (server.metrics)");
  const auto http = metrics::HttpServer::start(server.metrics->address, server.metrics->port, {});
  if (http) return good(what, (*http)->url());
  if (running && running->silent)
    return {what, Health::kUnknown,
            fmt::format("not judged: {}; the server in {} did not say which port it has ({})",
                        http.error().message, running->directory.string(), running->silent->message),
            "try again when that server answers `headrace health`, or has stopped"};
  if (running && running->metrics_url.ends_with(fmt::format(":{}", server.metrics->port)))
    return good(what, running->metrics_url + ", of the server that runs now");
  return broken(what, http.error());
}

Finding judge_samples(const exec::StreamSetup& setup, const config::Config& config, bool all) {
  const std::string what = "stream " + setup.info.name;
  if (setup.info.live) return good(what, "is fed by another process");
  const auto tried = try_samples(setup.info.name, *setup.maker, all, config.server.threads);
  if (!tried) return broken(what, tried.error());
  const std::uint64_t size = setup.maker->size();
  if (tried->bad == 0 && size == 1) return good(what, "its only sample is sound");
  if (tried->bad == 0 && all)
    return good(what, fmt::format("all of the first epoch's {} samples are sound", tried->tried));
  if (tried->bad == 0)
    return good(what, fmt::format("{}; {} were tried", count_of(setup.info.samples, "sample"), tried->tried));
  const double allowed = setup.maker->allowed_bad();
  const std::string list = list_of(*tried, size);
  if (tried->bad == tried->tried) return broken(what, {ErrorCode::kDatasetInvalid, list});
  const auto found = config.streams.find(setup.info.name);
  const config::StreamConfig* const stream = found == config.streams.end() ? nullptr : &found->second;
  if (static_cast<double>(tried->distinct) > allowed)
    return {what, Health::kBroken, list, remedy_of(stream, *tried, size, allowed),
            ErrorCode::kDatasetInvalid};
  // An upload stream allows none, so this is another stream.
  const double most = stream->max_bad * static_cast<double>(tried->tried);
  const bool sampled = tried->tried < size;
  if (sampled && static_cast<double>(tried->distinct) > most)
    return {what, Health::kUnknown, list,
            fmt::format("the stream will probably fail: more of the tried samples are bad than max_bad ({}) "
                        "allows. Run `headrace check --all` to try all samples; repair or remove the bad "
                        "files, or raise max_bad",
                        stream->max_bad)};
  return {what, Health::kPoor, list, {}};
}

}  // namespace headrace::server::verbs
