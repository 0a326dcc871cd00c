// Names the bottleneck of a stream. The input is the server's `stats` (session/collector_stats.cpp), now and
// earlier.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace headrace::server::status {

enum class Severity : std::uint8_t { kFine, kNotice, kProblem };

struct Finding {
  Severity severity = Severity::kFine;
  std::string text;
};

/// Less says little: it may be a start or a short pause.
inline constexpr double kFewestSeconds = 2;

/// The stream's bottleneck and its remedy, as a sentence. `before`: the stats `seconds` before `now`.
/// REQUIRES: `now` has the stream. Throws json::exception if the stats are of another version.
Finding finding(const std::string& stream, const nlohmann::json& now, const nlohmann::json& before,
                double seconds);

}  // namespace headrace::server::status
