// A snapshot of a stream for metrics and `stats`, taken without the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/exec/engine.h"
#include "server/session/sharing_watch.h"

namespace headrace::server::session {

struct StreamSnapshot {
  StreamInfo info;
  metrics::StreamTotals totals;
  exec::StreamFigures figures;
  std::uint64_t blocked_ns = 0, since_batch_ns = 0, begins_in_ns = 0, ring_bytes = 0, window_bytes = 0,
                window_limit_bytes = 0, window_refused = 0;
  std::vector<exec::ClientStatus> clients;
  exec::SampleMaker::BadSamples bad;
  std::vector<std::uint64_t> started;  ///< by rank
  std::uint32_t max_lag = 0;           ///< sharing.max_lag
  bool waits = false;                  ///< its clients wait for one another (`on_lag: wait`)
  bool failed = false;
  Error failure;
  publish::Position foremost;
  /// Bytes that a cache of all decoded samples would need; nullopt: not known yet, there is one, or it would
  /// not help.
  std::optional<std::uint64_t> decoded_cache_bytes;
  std::string source_read_ahead;  ///< the source's name; empty: the stream does not prefetch
  io::ReadAhead::Counts reads;
};

/// Where streams share rows, `lag_seconds` of the clients is measured by the watch of their group.
StreamSnapshot snapshot_of(const exec::Engine& engine, std::size_t index, const WatchedGroups& sharing);

/// See StreamSnapshot.
std::optional<std::uint64_t> decoded_cache_bytes(const exec::SampleMaker& maker,
                                                 const metrics::StreamTotals& totals);

/// The counters in the client's lease segment; zeros for a lane without a client.
ring::RingWriter::ClientReport report_of(const exec::ClientStatus& client);
/// The fraction of its epoch that the foremost client has read, from 0 to 1.
double progress(const StreamSnapshot& stream);

}  // namespace headrace::server::session
