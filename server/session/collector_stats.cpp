// The statistics as JSON: for `headrace stats` and `ls`, and for clients that ask why they wait.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "clientlib/ring/futex.h"
#include "clientlib/ring/segment.h"
#include "headrace/version.h"
#include "server/config/cpus.h"
#include "server/session/cache_metrics.h"
#include "server/session/collector.h"
#include "server/session/stream_snapshot.h"
#include "server/status/growth.h"

namespace headrace::server::session {

namespace {

/// At most a second old: reading a cgroup's statistics takes milliseconds on large machines.
std::uint64_t memory_available() {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  static std::atomic<std::uint64_t> bytes{0}, read_ns{0};
  const std::uint64_t now = ring::monotonic_ns();
  std::uint64_t before = read_ns.load();
  if ((before == 0 || now - before > kSecond) && read_ns.compare_exchange_strong(before, now))
    bytes = ring::memory_headroom().bytes;
  return bytes;
}

/// `streams`: the JSON of all streams.
nlohmann::json figures_of(const WatchedGroup& watched, const nlohmann::json& streams) {
  std::uint64_t decoded = 0, granted = 0;
  for (const std::string& name : watched.group.streams) {
    decoded += streams.at(name).at("decoded").get<std::uint64_t>();
    granted += streams.at(name).at("granted").get<std::uint64_t>();
  }
  nlohmann::json out{
      {"streams", watched.group.streams},
      {"decoded", decoded},
      {"granted", granted},
      {"sharing_factor", status::sharing_factor(static_cast<double>(granted), static_cast<double>(decoded))},
      {"decoded_in_30_s", nullptr},
      {"granted_in_30_s", nullptr},
      {"decoded_again_in_30_s", nullptr},
      {"interval_ended_seconds_ago", nullptr}};
  if (const auto interval = watched.watch.last_interval()) {
    const std::uint64_t now = ring::monotonic_ns();
    out["decoded_in_30_s"] = interval->decoded;
    out["granted_in_30_s"] = interval->granted;
    out["decoded_again_in_30_s"] = interval->again;
    out["interval_ended_seconds_ago"] = static_cast<double>(now - std::min(now, interval->end_ns)) * 1e-9;
  }
  return out;
}

}  // namespace

nlohmann::json Collector::stats() const {
  nlohmann::json streams = nlohmann::json::object();
  for (std::size_t i = 0; i < engine_.stream_count(); ++i) {
    const StreamSnapshot s = snapshot_of(engine_, i, sharing_);
    nlohmann::json clients = nlohmann::json::array();
    for (const exec::ClientStatus& c : s.clients)
      clients.push_back({{"client", c.client},
                         {"group", c.group},
                         {"rank", c.rank},
                         {"lag", c.lag},
                         {"sharing_lag", c.sharing_lag},
                         {"lag_seconds", c.lag_seconds ? nlohmann::json(*c.lag_seconds) : nlohmann::json()},
                         {"granted", c.lane.granted},
                         {"leases", c.lane.leases},
                         {"fenced", c.lane.fenced != 0},
                         {"waits_for_one_behind", c.lane.waits != 0},
                         {"called_next", c.lane.asked != 0},
                         {"waiting", report_of(c).waiting},
                         {"wait_seconds", static_cast<double>(report_of(c).wait_ns) * 1e-9},
                         {"private_copies", report_of(c).private_copies},
                         {"staged_copies", report_of(c).staged_copies},
                         {"next", {{"epoch", c.lane.next.epoch}, {"batch", c.lane.next.batch}}}});
    nlohmann::json errors = nlohmann::json::object();
    for (std::size_t r = 1; r < metrics::kReasons; ++r)
      if (s.totals.errors[r])
        errors[std::string(name_of(static_cast<transform::BadReason>(r)))] = s.totals.errors[r];
    nlohmann::json stages = nlohmann::json::object();
    for (std::size_t stage = 0; stage < metrics::kStages; ++stage)
      stages[metrics::kStageNames[stage]] = static_cast<double>(s.totals.stages[stage].total_ns) * 1e-9;
    streams[s.info.name] = {
        {"samples_per_epoch", s.info.samples},
        {"batch_size", s.info.batch_size},
        {"live", s.info.live},
        {"delivery", s.info.delivery == Delivery::kShard ? "shard" : "broadcast"},
        {"samples", s.totals.samples},
        {"batches", s.totals.batches},
        {"read_bytes", s.totals.read_bytes},
        {"published_bytes", s.totals.published_bytes},
        {"replaced", s.totals.replaced},
        {"shared", s.totals.shared},
        {"cached", s.totals.cached},
        {"made_elsewhere", s.totals.remote},
        {"decoded", s.totals.decoded()},
        {"granted", s.figures.granted},
        {"window_bytes", s.window_bytes},
        {"window_limit_bytes", s.window_limit_bytes},
        {"window_refused", s.window_refused},
        {"errors", errors},
        {"bad_samples", {{"distinct", s.bad.distinct}, {"first", s.bad.first}}},
        {"stage_seconds", stages},
        {"busy_seconds", static_cast<double>(s.totals.busy_ns) * 1e-9},
        {"blocked_seconds", static_cast<double>(s.blocked_ns) * 1e-9},
        {"leases_reclaimed", s.figures.leases_reclaimed},
        {"detachments", s.figures.detachments},
        {"checksum_mismatches", s.figures.checksum_mismatches},
        {"max_lag", s.max_lag},
        {"ring_bytes", s.ring_bytes},
        {"decoded_cache_bytes",
         s.decoded_cache_bytes ? nlohmann::json(*s.decoded_cache_bytes) : nlohmann::json()},
        {"epoch", s.foremost.epoch},
        {"progress", progress(s)},
        {"slots",
         {{"free", s.figures.free},
          {"filling", s.figures.filling},
          {"ready", s.figures.ready},
          {"leased", s.figures.leased}}},
        {"clients", clients},
        {"read_ahead",
         {{"hit", s.reads.hits},
          {"wait", s.reads.waits},
          {"miss", s.reads.misses},
          {"dropped", s.reads.dropped}}},
        {"missing_ranks", s.figures.missing_ranks},
        {"awaited_clients", s.figures.awaited_clients},
        {"begins_in_seconds", s.figures.begins_at_ns == 0
                                  ? nlohmann::json()
                                  : nlohmann::json(static_cast<double>(s.begins_in_ns) * 1e-9)},
        {"clients_wait_for_each_other", s.waits},
        {"batches_started_by_rank", s.started},
        {"failed", s.failed
                       ? nlohmann::json{{"code", name_of(s.failure.code)}, {"message", s.failure.message}}
                       : nlohmann::json()}};
  }
  nlohmann::json sharing = nlohmann::json::array();
  for (const auto& group : sharing_) {
    sharing.push_back(figures_of(*group, streams));
  }
  return {{"version", kVersion},
          {"sharing", std::move(sharing)},
          {"pid", ::getpid()},
          {"caches", caches_as_json(caches_)},
          {"bridge", nodes_as_json()},
          {"workers", engine_.threads()},
          {"cpus", config::default_threads()},
          {"memory_available", memory_available()},
          {"busy_seconds", static_cast<double>(engine_.busy_ns()) * 1e-9},
          {"cpu_wait_seconds", static_cast<double>(engine_.cpu_wait_ns()) * 1e-9},
          {"streams", streams}};
}

}  // namespace headrace::server::session
