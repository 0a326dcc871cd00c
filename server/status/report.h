// What `/api/v1/status` reports: the server's `stats`, with rates and findings of the last minute.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "server/status/history.h"

namespace headrace::server::status {

/// `now`: stats (session/collector_stats.cpp), `past`: those of the last minute, oldest first. Adds to the
/// whole "workers_busy" (from 0 to 1). Adds to each stream:
/// - "seconds": the time of which the following figures are, at most a minute, in which no client came or
/// went;
/// - "finding": {"severity": "fine", "notice" or "problem", "text"}, see findings.h;
/// - "samples_per_second", granted to all clients together;
/// - "blocked", the part of the time with a full ring;
/// - "busy", the part of all workers' time that the stream took, and "stages", the parts of that;
/// - "seconds_left" of the foremost client's epoch; null: not known;
/// - "sharing_factor", samples granted per sample decoded since the start; null: none was decoded.
/// Adds to each client "samples_per_second" and "waited", the part of the time.
nlohmann::json report(nlohmann::json now, std::uint64_t now_ns, const History::Entries& past);

}  // namespace headrace::server::status
