#include "server/session/collector.h"

#include <fmt/format.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "clientlib/ring/futex.h"
#include "headrace/version.h"
#include "server/log/sink.h"
#include "server/session/admission.h"
#include "server/session/cache_metrics.h"
#include "server/session/families.h"
#include "server/session/stream_snapshot.h"

namespace headrace::server::session {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr double kNs = 1e-9;
constexpr std::uint64_t kStallNs = 10'000'000'000;

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
                    "Samples expected from read-ahead, by outcome: hit (ready in time), wait (a worker had "
                    "to wait), miss (a worker read it itself), dropped (no room).",
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
  each("headrace_io_read_seconds_total", "Total time of the reads by I/O threads.", MetricType::Counter,
       [](const auto& r) { return static_cast<double>(r.read_ns) * kNs; });
  each("headrace_io_reads_in_flight", "Reads under way.", MetricType::Gauge,
       [](const auto& r) { return r.reading; });
  each("headrace_read_ahead_samples", "Samples read ahead that no worker has used yet.", MetricType::Gauge,
       [](const auto& r) { return r.read_samples; });
  each("headrace_read_ahead_bytes", "Memory of the samples read ahead that no worker has used yet.",
       MetricType::Gauge, [](const auto& r) { return r.read_bytes; });
  MetricFamily& family =
      families.open("headrace_io_threads", "Threads that read a source ahead.", MetricType::Gauge);
  for (const auto& [source, count] : threads) add(family, {{"source", source}}, static_cast<double>(count));
}

}  // namespace

std::vector<MetricFamily> Collector::Collect() const {
  std::vector<StreamSnapshot> streams;
  for (std::size_t i = 0; i < engine_.stream_count(); ++i)
    streams.push_back(snapshot_of(engine_, i, sharing_));
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
  counter("headrace_samples_decoded_total",
          "Samples made from what was read; granted divided by decoded, over streams that share rows, is the "
          "sharing factor.",
          [](const auto& s) { return s.totals.decoded(); });
  counter("headrace_samples_cached_total", "Samples written into slots from a decoded cache.",
          [](const auto& s) { return s.totals.cached; });
  counter("headrace_samples_made_elsewhere_total", "Samples written into slots that another node made.",
          [](const auto& s) { return s.totals.remote; });
  counter(
      "headrace_window_refused_total",
      "Rows that others needed, but that were not kept because the window was full; streams that share rows "
      "report the same value: do not add them up.",
      [](const auto& s) { return s.window_refused; });
  counter("headrace_samples_granted_total",
          "Samples granted to clients; a batch granted to several clients counts once for each.",
          [](const auto& s) { return s.figures.granted; });
  counter("headrace_batches_total", "Batches published.", [](const auto& s) { return s.totals.batches; });
  counter("headrace_source_read_bytes_total",
          "Bytes of samples as their source gave them, from its encoded or disk cache as well.",
          [](const auto& s) { return s.totals.read_bytes; });
  counter("headrace_published_bytes_total", "Bytes of field values published.",
          [](const auto& s) { return s.totals.published_bytes; });
  counter("headrace_samples_replaced_total", "Rows in which another sample replaces a bad one.",
          [](const auto& s) { return s.totals.replaced; });
  {
    MetricFamily& family =
        families.open("headrace_sample_errors_total", "Bad samples found, by reason.", MetricType::Counter);
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
  add(families.open(
          "headrace_cpu_wait_seconds_total",
          "Time that workers were ready to run, but other threads used the CPUs or a CPU limit applied, "
          "all together.",
          MetricType::Counter),
      {}, static_cast<double>(engine_.cpu_wait_ns()) * kNs);
  counter("headrace_producer_blocked_seconds_total",
          "Time that a stream's ring was full, so that the server waited for clients.",
          [](const auto& s) { return static_cast<double>(s.blocked_ns) * kNs; });
  by_client("headrace_client_wait_seconds_total", "Time that a client waited in next() for batches.",
            MetricType::Counter,
            [](const auto& c) { return static_cast<double>(report_of(c).wait_ns) * kNs; });
  by_client("headrace_client_waiting", "1 while the client waits in next() for a batch, otherwise 0.",
            MetricType::Gauge, [](const auto& c) { return report_of(c).waiting && c.lane.fenced == 0; });
  by_client("headrace_client_lag_batches", "Batches behind the foremost client of the stream.",
            MetricType::Gauge, [](const auto& c) { return c.lag; });
  {
    MetricFamily& family = families.open(
        "headrace_client_lag_seconds",
        "Seconds since the foremost client of the streams that share rows was at this client's position; for "
        "a stream without "
        "window (sharing.window: 0B), estimated from the average pace. Absent if it is not known.",
        MetricType::Gauge);
    for (const StreamSnapshot& s : streams)
      for (const exec::ClientStatus& c : s.clients)
        if (c.lag_seconds) add(family, {{"stream", s.info.name}, {"client", c.client}}, *c.lag_seconds);
  }
  by_client("headrace_client_samples_total", "Samples granted to a client.", MetricType::Counter,
            [](const auto& c) { return c.lane.granted; });
  by_client("headrace_client_leases", "Batches that a client holds or has been granted.", MetricType::Gauge,
            [](const auto& c) { return c.lane.leases; });
  by_client("headrace_client_private_copies_total",
            "Batches copied because the client's views held all leases.", MetricType::Counter,
            [](const auto& c) { return report_of(c).private_copies; });
  by_client(
      "headrace_client_staged_copies_total",
      "Batches copied to a device from a ring that is not pinned; the driver copies each of them once more.",
      MetricType::Counter, [](const auto& c) { return report_of(c).staged_copies; });
  const auto by_sharing = [&](const char* name, const char* help, auto value) {
    MetricFamily& family = families.open(name, help, MetricType::Counter);
    for (const auto& sharing : sharing_)
      add(family, {{"streams", fmt::format("{}", fmt::join(sharing->group.streams, ","))}},
          static_cast<double>(value(sharing->watch.total())));
  };
  by_sharing("headrace_sharing_decoded_total",
             "Samples decoded by streams that can share rows; updated every 30 s, without intervals in which "
             "a client came or went.",
             [](const auto& total) { return total.decoded; });
  by_sharing("headrace_sharing_decoded_again_total",
             "Samples that these intervals decoded again because clients were too far apart to share rows (a "
             "part of headrace_sharing_decoded_total).",
             [](const auto& total) { return total.again; });
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
        "Memory of the rows that are kept for others; streams that share rows report the same value: do not "
        "add them up.",
        [](const auto& s) { return s.window_bytes; });
  gauge("headrace_window_limit_bytes",
        "The most that it may use (sharing.window); do not add these up either.",
        [](const auto& s) { return s.window_limit_bytes; });
  gauge("headrace_clients", "Clients attached.", [](const auto& s) { return s.clients.size(); });
  gauge("headrace_awaited_clients", "Clients that a stream waits for before it begins (sharing.wait_for).",
        [](const auto& s) { return s.figures.awaited_clients; });
  gauge("headrace_missing_ranks", "Ranks that are not attached, in groups that have attached clients.",
        [](const auto& s) { return s.figures.missing_ranks; });
  counter("headrace_leases_reclaimed_total", "Leases reclaimed from clients that died.",
          [](const auto& s) { return s.figures.leases_reclaimed; });
  counter(
      "headrace_checksum_mismatches_total",
      "Batches that were damaged in memory, as clients found by their checksums (ring.checksums), and were "
      "made again.",
      [](const auto& s) { return s.figures.checksum_mismatches; });
  counter("headrace_detachments_total",
          "Times that a client fell more than max_lag batches behind its stream's foremost client, and got "
          "batches of its own.",
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
  const RefusalCounts counts = refusals();
  add(refused, {{"reason", "user"}}, static_cast<double>(counts.users));
  add(refused, {{"reason", "flood"}}, static_cast<double>(counts.floods));
  add(refused, {{"reason", "identity"}}, static_cast<double>(counts.names));
  add(refused, {{"reason", "descriptors"}}, static_cast<double>(counts.descriptors));
  add(families.open("headrace_build_info", "Version of this server.", MetricType::Gauge),
      {{"version", kVersion}, {"ring_layout", std::to_string(ring::kLayoutVersion)}}, 1);
  return with_network(families.take());
}

std::string Collector::exposition() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, Collect());
  return out.str();
}

std::string Collector::not_ready() const {
  const std::uint64_t now = ring::monotonic_ns();
  if (const std::uint64_t stall = engine_.longest_slice_ns(now); stall > kStallNs)
    return fmt::format("a worker has been in one slice for {} s", stall / 1'000'000'000);
  for (std::size_t i = 0; i < engine_.stream_count(); ++i) {
    const StreamSnapshot s = snapshot_of(engine_, i, sharing_);
    if (s.failed) return s.failure.message;
    if (s.clients.empty() || s.figures.awaited_clients > 0 || s.figures.ready + s.figures.leased > 0)
      continue;
    if (s.totals.batches == 0)
      return fmt::format("stream `{}` has clients and no batch yet{}", s.info.name, storage(s.reads));
    if (s.since_batch_ns > kStallNs)
      return fmt::format("stream `{}` has clients and gave no batch for {} s{}", s.info.name,
                         s.since_batch_ns / 1'000'000'000, storage(s.reads));
  }
  return {};
}

}  // namespace headrace::server::session
