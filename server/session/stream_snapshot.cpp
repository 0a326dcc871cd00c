#include "server/session/stream_snapshot.h"

#include <algorithm>
#include <numeric>

#include "clientlib/ring/futex.h"

namespace headrace::server::session {
namespace {

/// Replaces lags estimated from the average pace by measured ones, which stay right across pauses and
/// restarts. What cannot be measured, as after the foremost client left, stays unknown: an estimate next to
/// measurements would look like a jump.
void measure_lags(std::vector<exec::ClientStatus>& clients, const SharingWatch& watch, std::uint64_t now_ns) {
  for (exec::ClientStatus& client : clients)
    if (client.row) client.lag_seconds = watch.seconds_since(now_ns, *client.row);
}

}  // namespace

StreamSnapshot snapshot_of(const exec::Engine& engine, std::size_t index, const WatchedGroups& sharing) {
  const exec::Stream& stream = engine.stream(index);
  const exec::StreamStatus& status = stream.status();
  StreamSnapshot seen;
  seen.info = stream.info();
  seen.totals = engine.totals(index);
  seen.decoded_cache_bytes = decoded_cache_bytes(stream.maker(), seen.totals);
  seen.bad = stream.maker().bad_samples();
  if (const auto* const reads = stream.maker().read_ahead()) {
    seen.source_read_ahead = reads->pool().source();
    seen.reads = reads->counts();
  }
  seen.figures = status.figures();
  const std::uint64_t now = ring::monotonic_ns();  // after the figures were taken
  seen.blocked_ns = status.blocked_ns(seen.figures, now);
  seen.since_batch_ns = seen.figures.last_batch_ns ? now - seen.figures.last_batch_ns : 0;
  seen.begins_in_ns = seen.figures.begins_at_ns - std::min(seen.figures.begins_at_ns, now);
  seen.ring_bytes = stream.ring_bytes();
  if (const exec::RowWindow* const window = stream.maker().window()) {
    seen.window_bytes = window->used();
    seen.window_limit_bytes = window->budget();
    seen.window_refused = window->refused();
  }
  seen.max_lag = stream.sharing().max_lag;
  seen.waits = stream.sharing().broadcast && !stream.sharing().detach;
  seen.failed = status.failed();
  if (seen.failed) seen.failure = status.failure();
  seen.foremost = status.foremost();
  seen.clients = status.clients();
  for (const auto& group : sharing)
    if (group->group.has(seen.info.name)) measure_lags(seen.clients, group->watch, now);
  seen.started = status.started_by_rank();
  return seen;
}

std::optional<std::uint64_t> decoded_cache_bytes(const exec::SampleMaker& maker,
                                                 const metrics::StreamTotals& totals) {
  const std::uint64_t decoded = totals.decoded();
  if (decoded == 0 || maker.keeps_decoded()) return std::nullopt;
  const auto each = exec::kept_bytes(maker.source(), maker.plans(),
                                     static_cast<double>(totals.pixels) / static_cast<double>(decoded));
  if (!each) return std::nullopt;
  // A repeated sample is kept once.
  const std::vector<std::uint64_t> sizes = maker.source().distinct_sizes();
  const std::uint64_t distinct = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  return static_cast<std::uint64_t>(*each * static_cast<double>(std::min(maker.source().size(), distinct)));
}

ring::RingWriter::ClientReport report_of(const exec::ClientStatus& client) {
  return client.report.value_or(ring::RingWriter::ClientReport{});
}

double progress(const StreamSnapshot& stream) {
  return static_cast<double>(stream.foremost.position) / static_cast<double>(stream.info.samples);
}

}  // namespace headrace::server::session
