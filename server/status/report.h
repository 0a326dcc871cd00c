// Adds rates and findings of the last minute to the server's `stats`: the body of `/api/v1/status`.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "server/status/history.h"

namespace headrace::server::status {

/// `now`: stats (session/collector_stats.cpp). `past`: the stats of the last minute, oldest first. Adds the
/// keys that configs/status.md lists. The rates of a stream cover the time since its clients last changed, at
/// most a minute.
nlohmann::json report(nlohmann::json now, std::uint64_t now_ns, const History::Entries& past);

}  // namespace headrace::server::status
