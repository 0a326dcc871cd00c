#include "server/status/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "server/status/findings.h"
#include "server/status/growth.h"

namespace headrace::server::status {
namespace {

using nlohmann::json;

const char* name_of(Severity severity) {
  switch (severity) {
    case Severity::kProblem:
      return "problem";
    case Severity::kNotice:
      return "notice";
    case Severity::kFine:
      break;
  }
  return "fine";
}

/// Epochs that the foremost client has read.
double epochs(const json& stream) {
  return stream.at("epoch").get<double>() + stream.at("progress").get<double>();
}

/// Until the foremost client ends its epoch.
json seconds_left(const json& stream, const json& before, double seconds) {
  const double moved = before.empty() ? 0 : epochs(stream) - epochs(before);
  if (moved <= 0) return {};
  return (1 - stream.at("progress").get<double>()) * seconds / moved;
}

/// Whether both have the same clients, none of which began again in between.
bool continues(const json& earlier, const json& later) {
  const json &before = object_in(earlier, "clients"), &after = object_in(later, "clients");
  return before.size() == after.size() && std::all_of(before.begin(), before.end(), [&](const json& client) {
           const json& same = client_in(later, client.at("client").get<std::string>());
           return !same.empty() && same.at("granted") >= client.at("granted") &&
                  same.at("wait_seconds") >= client.at("wait_seconds");
         });
}

/// The oldest entry since which no client came, went or began again; or else the youngest one.
const History::Entry& earlier(const std::string& name, const json& stream, const History::Entries& past) {
  const History::Entry* found = past.back().get();
  const json* later = &stream;
  for (auto entry = past.rbegin(); entry != past.rend(); ++entry) {
    const json& then = stream_in((*entry)->stats, name);
    if (!continues(then, *later)) break;
    found = entry->get();
    later = &then;
  }
  return *found;
}

/// Adds to `stream` what it, `before` and the time between them tell.
void add_rates(json& stream, const json& before, double seconds, double workers) {
  for (json& client : stream.at("clients")) {
    const json& past = client_in(before, client.at("client").get<std::string>());
    const double received = growth(client, past, "granted");
    client["samples_per_second"] = received / seconds;
    client["waited"] = std::min(1.0, growth(client, past, "wait_seconds") / seconds);
  }
  stream["seconds"] = seconds;
  stream["samples_per_second"] = growth(stream, before, "granted") / seconds;
  stream["blocked"] = std::min(1.0, growth(stream, before, "blocked_seconds") / seconds);
  stream["busy"] = std::min(1.0, growth(stream, before, "busy_seconds") / (seconds * workers));
  stream["stages"] = stage_fractions(stream, before);
  stream["seconds_left"] = seconds_left(stream, before, seconds);
}

/// Streams that share rows have one factor, because one of them decodes for the others.
void add_sharing_factors(json& now) {
  json& streams = now.at("streams");
  for (json& stream : streams)
    stream["sharing_factor"] =
        sharing_factor(stream.at("granted").get<double>(), stream.at("decoded").get<double>());
  for (const json& group : now.at("sharing"))
    for (const json& name : group.at("streams"))
      streams.at(name.get<std::string>())["sharing_factor"] = group.at("sharing_factor");
}

}  // namespace

json report(json now, std::uint64_t now_ns, const History::Entries& past) {
  const double workers = now.at("workers").get<double>();
  const auto seconds_since = [&](const History::Entry& entry) {
    return std::max(0.001, static_cast<double>(now_ns - std::min(now_ns, entry.time_ns)) * 1e-9);
  };
  for (auto& [name, stream] : now.at("streams").items()) {
    const History::Entry& before = earlier(name, stream, past);
    const double seconds = seconds_since(before);
    const Finding found = finding(name, now, before.stats, seconds);
    stream["finding"] = {{"severity", name_of(found.severity)}, {"text", found.text}};
    add_rates(stream, stream_in(before.stats, name), seconds, workers);
  }
  add_sharing_factors(now);
  const double capacity = seconds_since(*past.front()) * workers;
  for (const auto& [fraction, of] :
       {std::pair{"workers_busy", "busy_seconds"}, {"cpu_wait", "cpu_wait_seconds"}})
    now[fraction] = std::min(1.0, growth(now, past.front()->stats, of) / capacity);
  return now;
}

}  // namespace headrace::server::status
