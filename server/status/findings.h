// Derives who waits for whom, as a sentence, from two `stats` of a server (session/collector_stats.cpp).
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

/// What limits a stream now, in one sentence, and what to do about it. `seconds` lie between `before` and
/// `now`. REQUIRES: `now` has the stream. Throws json::exception if they are no stats of this version.
Finding finding(const std::string& stream, const nlohmann::json& now, const nlohmann::json& before,
                double seconds);

}  // namespace headrace::server::status
