#include "server/status/status.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "clientlib/ring/futex.h"
#include "server/log/recent.h"
#include "server/status/page.h"
#include "server/status/report.h"

namespace headrace::server::status {
namespace {

/// The largest epoch and position in a query.
constexpr std::uint64_t kLast = 1'000'000'000'000;

using metrics::HttpReply;
using metrics::HttpRequest;
using nlohmann::json;

HttpReply refuse(int status, const std::string& why) {
  return {.status = status, .body = why + "\n"};
}

HttpReply refuse(const Error& error) {
  if (error.code == ErrorCode::kTimeout) return refuse(503, error.message);
  const bool request = error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kNoSuchStream;
  return refuse(request ? 404 : 500, error.message);
}

HttpReply as_json(const json& body) {
  return {.type = "application/json", .body = body.dump(-1, ' ', false, json::error_handler_t::replace)};
}

/// A whole number in the query that is not above `most`; `otherwise` if it is not given.
Result<std::uint64_t> number(const HttpRequest& request, const char* name, std::uint64_t otherwise,
                             std::uint64_t least, std::uint64_t most) {
  const auto found = request.parameters.find(name);
  if (found == request.parameters.end()) return otherwise;
  const std::string& text = found->second;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: expected a whole number from {} to {}, found `{}`", name, least, most, text));
  return value;
}

/// Removes names of files.
void hide_details(json& stats) {
  for (json& stream : stats.at("streams")) {
    stream["bad_samples"]["first"] = json::array();
    if (stream["failed"].is_object())
      stream["failed"]["message"] = "The stream stopped. The server's log says why.";
  }
}

}  // namespace

Status::Status(const exec::Engine& engine, Stats stats, Obstacle obstacle)
    : stats_(std::move(stats)),
      obstacle_(std::move(obstacle)),
      begun_ns_(ring::monotonic_ns()),
      history_(begun_ns_, stats_()),
      samples_(engine) {}

void Status::tick(std::uint64_t now_ns) {
  if (history_.is_due(now_ns)) history_.add(now_ns, stats_());
}

json Status::report(bool details) const {
  const std::uint64_t now = ring::monotonic_ns();
  json stats = stats_();
  if (!details) hide_details(stats);
  json out = status::report(std::move(stats), now, history_.entries());
  out["uptime_seconds"] = static_cast<double>(now - begun_ns_) * 1e-9;
  json& lines = out["log"] = details ? json::array() : json();
  if (!details) return out;
  for (const log::Line& line : log::recent_warnings())
    lines.push_back({{"time", line.time}, {"level", line.level}, {"text", line.text}});
  return out;
}

HttpReply Status::events(const HttpRequest& request) const {
  const bool details = obstacle_(request).empty();
  return {.type = "text/event-stream",
          .next = [this, details] { return "data: " + as_json(report(details)).body + "\n\n"; }};
}

HttpReply Status::samples(const HttpRequest& request) {
  if (const std::string obstacle = obstacle_(request); !obstacle.empty()) return refuse(403, obstacle);
  const auto count = number(request, "count", 8, 1, Samples::kMost);
  if (!count) return refuse(400, count.error().message);
  const auto samples = samples_.next(request.parameters.at("stream"), *count);
  return samples ? as_json(*samples) : refuse(samples.error());
}

HttpReply Status::image(const HttpRequest& request, bool original) {
  if (const std::string obstacle = obstacle_(request); !obstacle.empty()) return refuse(403, obstacle);
  const auto epoch = number(request, "epoch", 0, 0, kLast);
  if (!epoch) return refuse(400, epoch.error().message);
  const auto position = number(request, "position", 0, 0, kLast);
  if (!position) return refuse(400, position.error().message);
  const Samples::SamplePosition place{request.parameters.at("stream"), *epoch, *position};
  const std::string& field = request.parameters.at("field");
  auto file = original ? samples_.original(place, field) : samples_.row(place, field);
  if (!file) return refuse(file.error());
  return {.type = file->type, .body = std::move(file->bytes)};
}

std::vector<metrics::HttpServer::Route> Status::routes() {
  const std::vector<metrics::HttpParameter> none, sample{{"stream", true}, {"count"}},
      of_image{{"stream", true}, {"field", true}, {"epoch"}, {"position"}};
  return {
      {"/", [](const HttpRequest&) { return HttpReply{.type = "text/html; charset=utf-8", .body = page()}; }},
      {"/api/v1/status",
       [this](const HttpRequest& request) { return as_json(report(obstacle_(request).empty())); }, none},
      {"/api/v1/events", [this](const HttpRequest& request) { return events(request); }, none},
      {"/api/v1/samples", [this](const HttpRequest& request) { return samples(request); }, sample},
      {"/api/v1/row", [this](const HttpRequest& request) { return image(request, false); }, of_image},
      {"/api/v1/original", [this](const HttpRequest& request) { return image(request, true); }, of_image}};
}

}  // namespace headrace::server::status
