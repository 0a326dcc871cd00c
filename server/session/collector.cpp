#include "server/session/collector.h"

#include <fmt/format.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "clientlib/ring/futex.h"
#include "headrace/version.h"
#include "server/log/sink.h"
#include "server/session/admission.h"
#include "server/session/cache_metrics.h"
#include "server/session/families.h"

namespace headrace::server::session {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr double kNs = 1e-9;
constexpr std::uint64_t kStallNs = 10'000'000'000;

struct StreamSnapshot {
  StreamInfo info;
  metrics::StreamTotals totals;
  exec::StreamFigures figures;
  std::uint64_t blocked_ns = 0, since_batch_ns = 0, ring_bytes = 0, window_bytes = 0, window_refused = 0;
  std::vector<exec::ClientStatus> clients;
  exec::SampleMaker::BadSamples bad;
  std::vector<std::uint64_t> started;  ///< by rank
  bool waits = false;                  ///< its clients wait for one another (`on_lag: wait`)
  bool failed = false;
  Error failure;
  publish::Position foremost;
  std::string source_read_ahead;  ///< the source's name; empty: the stream does not prefetch
  io::ReadAhead::Counts reads;
};

StreamSnapshot snapshot_of(const exec::Engine& engine, std::size_t index) {
  const exec::Stream& stream = engine.stream(index);
  const exec::StreamStatus& status = stream.status();
  StreamSnapshot seen;
  seen.info = stream.info();
  seen.totals = engine.totals(index);
  seen.bad = stream.maker().bad_samples();
  if (const auto* const reads = stream.maker().read_ahead()) {
    seen.source_read_ahead = reads->pool().source();
    seen.reads = reads->counts();
  }
  seen.figures = status.figures();
  const std::uint64_t now = ring::monotonic_ns();  // after the figures were taken
  seen.blocked_ns = status.blocked_ns(seen.figures, now);
  seen.since_batch_ns = seen.figures.last_batch_ns ? now - seen.figures.last_batch_ns : 0;
  seen.ring_bytes = stream.ring_bytes();
  if (const exec::RowWindow* const window = stream.maker().window())
    seen.window_bytes = window->used(), seen.window_refused = window->refused();
  seen.waits = stream.sharing().broadcast && !stream.sharing().detach;
  seen.failed = status.failed();
  if (seen.failed) seen.failure = status.failure();
  seen.foremost = status.foremost();
  seen.clients = status.clients();
  seen.started = status.started_by_rank();
  return seen;
}

ring::RingWriter::ClientWord words(const exec::ClientStatus& client) {
  return client.word.value_or(ring::RingWriter::ClientWord{});
}

/// What a stream without batches may be waiting for.
std::string storage(const io::ReadAhead::Counts& reads) {
  if (reads.oldest_ns < kStallNs) return {};
  return fmt::format("; {} reads are in progress, the oldest for {} s: check their disk or mount",
                     reads.reading, reads.oldest_ns / 1'000'000'000);
}

/// The metrics of streams that prefetch.
void add_reads(Families& families, const std::vector<StreamSnapshot>& streams) {
  const auto each = [&](const char* name, const char* help, MetricType type, auto value) {
    MetricFamily& family = families.open(name, help, type);
    for (const StreamSnapshot& s : streams)
      if (!s.source_read_ahead.empty())
        add(family, {{"stream", s.info.name}}, static_cast<double>(value(s.reads)));
  };
  MetricFamily& taken =
      families.open("headrace_read_ahead_samples_total",
                    "Samples taken from what was read ahead, by whether they were there: hit, "
                    "wait (a worker found it missing), miss (a worker read it), dropped "
                    "(never taken).",
                    MetricType::Counter);
  std::map<std::string, std::size_t> threads;
  for (const StreamSnapshot& s : streams) {
    if (s.source_read_ahead.empty()) continue;
    threads[s.source_read_ahead] = s.reads.threads;
    const std::pair<const char*, std::uint64_t> outcomes[] = {{"hit", s.reads.hits},
                                                              {"wait", s.reads.waits},
                                                              {"miss", s.reads.misses},
                                                              {"dropped", s.reads.dropped}};
    for (const auto& [outcome, count] : outcomes)
      add(taken, {{"stream", s.info.name}, {"outcome", outcome}}, static_cast<double>(count));
  }
  each("headrace_io_reads_total", "Reads by I/O threads.", MetricType::Counter,
       [](const auto& r) { return r.reads; });
  each("headrace_io_read_seconds_total", "Time that these reads took, all together.", MetricType::Counter,
       [](const auto& r) { return static_cast<double>(r.read_ns) * kNs; });
  each("headrace_io_reads_in_flight", "Reads under way.", MetricType::Gauge,
       [](const auto& r) { return r.reading; });
  each("headrace_read_ahead_samples", "Samples read and not taken yet.", MetricType::Gauge,
       [](const auto& r) { return r.read_samples; });
  each("headrace_read_ahead_bytes", "Memory of these.", MetricType::Gauge,
       [](const auto& r) { return r.read_bytes; });
  MetricFamily& family =
      families.open("headrace_io_threads", "Threads that read a source ahead.", MetricType::Gauge);
  for (const auto& [source, count] : threads) add(family, {{"source", source}}, static_cast<double>(count));
}

nlohmann::json lag_seconds(const exec::ClientStatus& client) {
  return client.lag_seconds ? nlohmann::json(*client.lag_seconds) : nlohmann::json();
}

double progress(const StreamSnapshot& stream) {
  return static_cast<double>(stream.foremost.position) / static_cast<double>(stream.info.samples);
}

}  // namespace

std::vector<MetricFamily> Collector::Collect() const {
  std::vector<StreamSnapshot> streams;
  for (std::size_t i = 0; i < engine_.stream_count(); ++i) streams.push_back(snapshot_of(engine_, i));
  Families families;
  const auto counter = [&](const char* name, const char* help, auto value) {
    MetricFamily& family = families.open(name, help, MetricType::Counter);
    for (const StreamSnapshot& s : streams)
      add(family, {{"stream", s.info.name}}, static_cast<double>(value(s)));
  };
  const auto gauge = [&](const char* name, const char* help, auto value) {
    MetricFamily& family = families.open(name, help, MetricType::Gauge);
    for (const StreamSnapshot& s : streams)
      add(family, {{"stream", s.info.name}}, static_cast<double>(value(s)));
  };
  const auto by_client = [&](const char* name, const char* help, MetricType type, auto value) {
    MetricFamily& family = families.open(name, help, type);
    for (const StreamSnapshot& s : streams)
      for (const exec::ClientStatus& c : s.clients)
        add(family, {{"stream", s.info.name}, {"client", c.client}}, static_cast<double>(value(c)));
  };

  counter("headrace_samples_total", "Samples written into slots.",
          [](const auto& s) { return s.totals.samples; });
  counter(
      "headrace_samples_shared_total",
      "Samples written into slots that were not decoded for this batch: another client or stream had them.",
      [](const auto& s) { return s.totals.shared; });
  counter("headrace_samples_cached_total", "Samples written into slots from a decoded cache.",
          [](const auto& s) { return s.totals.cached; });
  counter(
      "headrace_window_refused_total",
      "Rows that others needed, but that were not kept because the window was full; streams that share rows "
      "report the same rows.",
      [](const auto& s) { return s.window_refused; });
  counter("headrace_samples_granted_total",
          "Samples of the batches that clients were granted: one batch counts once for each of them.",
          [](const auto& s) { return s.figures.granted; });
  counter("headrace_batches_total", "Batches published.", [](const auto& s) { return s.totals.batches; });
  counter("headrace_source_read_bytes_total",
          "Bytes of samples as their source gave them, from its encoded or disk cache as well.",
          [](const auto& s) { return s.totals.read_bytes; });
  counter("headrace_published_bytes_total", "Bytes of field values published.",
          [](const auto& s) { return s.totals.published_bytes; });
  counter("headrace_samples_replaced_total", "Rows in which another sample stands in for a bad one.",
          [](const auto& s) { return s.totals.replaced; });
  {
    MetricFamily& family =
        families.open("headrace_sample_errors_total", "Bad samples met, by reason.", MetricType::Counter);
    for (const StreamSnapshot& s : streams)
      for (std::size_t r = 1; r < metrics::kReasons; ++r)
        add(family,
            {{"stream", s.info.name}, {"reason", std::string(name_of(static_cast<transform::BadReason>(r)))}},
            static_cast<double>(s.totals.errors[r]));
  }
  {
    MetricFamily& family =
        families.open("headrace_stage_seconds", "Time per sample in a stage.", MetricType::Histogram);
    for (const StreamSnapshot& s : streams)
      for (std::size_t stage = 0; stage < metrics::kStages; ++stage) {
        const auto& from = s.totals.stages[stage];
        ClientMetric metric;
        metric.label = {{"stream", s.info.name}, {"stage", metrics::kStageNames[stage]}};
        std::uint64_t sum = 0;
        for (std::size_t b = 0; b < from.buckets.size(); ++b) {
          sum += from.buckets[b];
          metric.histogram.bucket.push_back({sum, b < metrics::kStageBounds.size()
                                                      ? metrics::kStageBounds[b]
                                                      : std::numeric_limits<double>::infinity()});
        }
        metric.histogram.sample_count = sum;
        metric.histogram.sample_sum = static_cast<double>(from.total_ns) * kNs;
        family.metric.push_back(std::move(metric));
      }
  }
  add(families.open("headrace_worker_busy_seconds_total", "Time that workers spent on rows, all together.",
                    MetricType::Counter),
      {}, static_cast<double>(engine_.busy_ns()) * kNs);
  add(families.open("headrace_workers", "Worker threads.", MetricType::Gauge), {}, engine_.threads());
  counter("headrace_producer_blocked_seconds_total",
          "Time in which a stream's ring was full: its clients are slower.",
          [](const auto& s) { return static_cast<double>(s.blocked_ns) * kNs; });
  by_client("headrace_client_wait_seconds_total",
            "Time that a client waited in next(): the server is slower.", MetricType::Counter,
            [](const auto& c) { return static_cast<double>(words(c).wait_ns) * kNs; });
  by_client("headrace_client_waiting", "1 while the client sleeps in next() until it is granted a batch.",
            MetricType::Gauge, [](const auto& c) { return words(c).waiting; });
  by_client("headrace_client_lag_batches", "Batches behind the foremost client of the stream.",
            MetricType::Gauge, [](const auto& c) { return c.lag; });
  by_client(
      "headrace_client_lag_seconds",
      "Lag in seconds: headrace_client_lag_batches at the average pace of the stream's foremost client; 0 "
      "until that client has been served for a second.",
      MetricType::Gauge, [](const auto& c) { return c.lag_seconds.value_or(0); });
  by_client("headrace_client_leases", "Batches in a client's hands or granted to it.", MetricType::Gauge,
            [](const auto& c) { return c.lane.leases; });
  by_client("headrace_client_private_copies_total",
            "Batches copied because the client's views held all leases.", MetricType::Counter,
            [](const auto& c) { return words(c).private_copies; });
  by_client("headrace_client_staged_copies_total",
            "Batches copied to a device through a staging buffer, because the ring could not be pinned.",
            MetricType::Counter, [](const auto& c) { return words(c).staged_copies; });
  const auto by_sharing = [&](const char* name, const char* help, auto value) {
    MetricFamily& family = families.open(name, help, MetricType::Counter);
    for (const SharingCounts& group : sharing_)
      add(family, {{"streams", group.streams}}, static_cast<double>(value(group).get()));
  };
  by_sharing("headrace_sharing_decoded_total",
             "Samples decoded by streams that share rows, counted every 30 s.",
             [](const SharingCounts& group) -> const metrics::Count& { return group.decoded; });
  by_sharing("headrace_sharing_decoded_again_total",
             "Of these: decoded again because their clients are too far apart to share rows.",
             [](const SharingCounts& group) -> const metrics::Count& { return group.again; });
  {
    MetricFamily& family = families.open("headrace_ring_slots", "Slots by state.", MetricType::Gauge);
    for (const StreamSnapshot& s : streams) {
      add(family, {{"stream", s.info.name}, {"state", "free"}}, static_cast<double>(s.figures.free));
      add(family, {{"stream", s.info.name}, {"state", "filling"}}, static_cast<double>(s.figures.filling));
      add(family, {{"stream", s.info.name}, {"state", "ready"}}, static_cast<double>(s.figures.ready));
      add(family, {{"stream", s.info.name}, {"state", "leased"}}, static_cast<double>(s.figures.leased));
    }
  }
  add_reads(families, streams);
  gauge("headrace_ring_bytes", "Shared memory of a stream's ring.",
        [](const auto& s) { return s.ring_bytes; });
  gauge("headrace_window_bytes",
        "Memory of the rows that are kept for others; streams that share rows report the same rows.",
        [](const auto& s) { return s.window_bytes; });
  gauge("headrace_clients", "Clients attached.", [](const auto& s) { return s.clients.size(); });
  gauge("headrace_missing_ranks", "Ranks of groups with attached clients that are not attached.",
        [](const auto& s) { return s.figures.missing_ranks; });
  counter("headrace_leases_reclaimed_total", "Leases taken back from clients that died.",
          [](const auto& s) { return s.figures.leases_reclaimed; });
  counter("headrace_detachments_total", "Times that a lagging client was cut down to slots of its own.",
          [](const auto& s) { return s.figures.detachments; });
  gauge("headrace_epoch", "Epoch of the foremost client.", [](const auto& s) { return s.foremost.epoch; });
  gauge("headrace_epoch_progress_ratio", "Progress of the foremost client in its epoch.",
        [](const auto& s) { return progress(s); });
  gauge("headrace_stream_failed", "1 if the stream stopped with an error.",
        [](const auto& s) { return s.failed; });
  add_caches(families, caches_);
  add(families.open("headrace_control_bad_messages_total", "Malformed control messages, dropped.",
                    MetricType::Counter),
      {}, static_cast<double>(bad_messages_.get()));
  add(families.open(
          "headrace_log_lines_dropped_total",
          "Log lines dropped because the pipe, terminal or socket behind the log had no room or no reader.",
          MetricType::Counter),
      {}, static_cast<double>(log::dropped_lines()));
  auto& refused =
      families.open("headrace_connections_refused_total",
                    "Connections that the server closed, by reason: the user is not admitted (user), "
                    "too many unprocessed bytes (flood), a ZeroMQ identity or an invalid handshake "
                    "(identity), or no descriptors left for this user (descriptors).",
                    MetricType::Counter);
  const Refusals counts = refusals();
  add(refused, {{"reason", "user"}}, static_cast<double>(counts.users));
  add(refused, {{"reason", "flood"}}, static_cast<double>(counts.floods));
  add(refused, {{"reason", "identity"}}, static_cast<double>(counts.names));
  add(refused, {{"reason", "descriptors"}}, static_cast<double>(counts.descriptors));
  add(families.open("headrace_build_info", "Version of this server.", MetricType::Gauge),
      {{"version", kVersion}, {"ring_layout", std::to_string(ring::kLayoutVersion)}}, 1);
  return with_network(families.take());
}

Collector::SharingCounts& Collector::add_sharing(std::string streams) {
  SharingCounts& counts = sharing_.emplace_back();
  counts.streams = std::move(streams);
  return counts;
}

std::string Collector::exposition() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, Collect());
  return out.str();
}

nlohmann::json Collector::stats() const {
  nlohmann::json streams = nlohmann::json::object();
  for (std::size_t i = 0; i < engine_.stream_count(); ++i) {
    const StreamSnapshot s = snapshot_of(engine_, i);
    nlohmann::json clients = nlohmann::json::array();
    for (const exec::ClientStatus& c : s.clients)
      clients.push_back({{"client", c.client},
                         {"group", c.group},
                         {"rank", c.rank},
                         {"lag", c.lag},
                         {"lag_seconds", lag_seconds(c)},
                         {"sharing_lag", c.sharing_lag},
                         // Server::stats() knows better where there is a window.
                         {"sharing_lag_seconds", c.sharing_lag == c.lag ? lag_seconds(c) : nlohmann::json()},
                         {"row", c.row ? nlohmann::json(*c.row) : nlohmann::json()},
                         {"granted", c.lane.granted},
                         {"leases", c.lane.leases},
                         {"fenced", c.lane.fenced != 0},
                         {"waits_for_one_behind", c.lane.waits != 0},
                         {"wait_seconds", static_cast<double>(words(c).wait_ns) * kNs},
                         {"private_copies", words(c).private_copies},
                         {"staged_copies", words(c).staged_copies},
                         {"next", {{"epoch", c.lane.next.epoch}, {"batch", c.lane.next.batch}}}});
    nlohmann::json errors = nlohmann::json::object();
    for (std::size_t r = 1; r < metrics::kReasons; ++r)
      if (s.totals.errors[r])
        errors[std::string(name_of(static_cast<transform::BadReason>(r)))] = s.totals.errors[r];
    nlohmann::json stages = nlohmann::json::object();
    for (std::size_t stage = 0; stage < metrics::kStages; ++stage)
      stages[metrics::kStageNames[stage]] = static_cast<double>(s.totals.stages[stage].total_ns) * kNs;
    streams[s.info.name] = {{"samples", s.totals.samples},
                            {"batches", s.totals.batches},
                            {"read_bytes", s.totals.read_bytes},
                            {"published_bytes", s.totals.published_bytes},
                            {"replaced", s.totals.replaced},
                            {"shared", s.totals.shared},
                            {"cached", s.totals.cached},
                            {"decoded", s.totals.decoded()},
                            {"granted", s.figures.granted},
                            {"window_bytes", s.window_bytes},
                            {"errors", errors},
                            {"bad_samples", {{"distinct", s.bad.distinct}, {"first", s.bad.first}}},
                            {"stage_seconds", stages},
                            {"busy_seconds", static_cast<double>(s.totals.busy_ns) * kNs},
                            {"blocked_seconds", static_cast<double>(s.blocked_ns) * kNs},
                            {"leases_reclaimed", s.figures.leases_reclaimed},
                            {"detachments", s.figures.detachments},
                            {"ring_bytes", s.ring_bytes},
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
                            {"clients_wait_for_each_other", s.waits},
                            {"batches_started_by_rank", s.started},
                            {"failed", s.failed ? nlohmann::json{{"code", name_of(s.failure.code)},
                                                                 {"message", s.failure.message}}
                                                : nlohmann::json()}};
  }
  return {{"version", kVersion},
          {"pid", ::getpid()},
          {"caches", caches_as_json(caches_)},
          {"workers", engine_.threads()},
          {"busy_seconds", static_cast<double>(engine_.busy_ns()) * kNs},
          {"streams", streams}};
}

std::string Collector::not_ready() const {
  const std::uint64_t now = ring::monotonic_ns();
  if (const std::uint64_t stall = engine_.longest_slice_ns(now); stall > kStallNs)
    return fmt::format("a worker has been in one slice for {} s", stall / 1'000'000'000);
  for (std::size_t i = 0; i < engine_.stream_count(); ++i) {
    const StreamSnapshot s = snapshot_of(engine_, i);
    if (s.failed) return s.failure.message;
    if (s.clients.empty() || s.figures.ready + s.figures.leased > 0) continue;
    if (s.totals.batches == 0)
      return fmt::format("stream `{}` has clients and no batch yet{}", s.info.name, storage(s.reads));
    if (s.since_batch_ns > kStallNs)
      return fmt::format("stream `{}` has clients and gave no batch for {} s{}", s.info.name,
                         s.since_batch_ns / 1'000'000'000, storage(s.reads));
  }
  return {};
}

}  // namespace headrace::server::session
