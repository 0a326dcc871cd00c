// What to change if a stage of the workers is the bottleneck.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

namespace headrace::server::status {

/// Memory that `cache: decoded` would need, if it would help, and what is available.
struct CacheSize {
  std::optional<std::uint64_t> needed;
  std::uint64_t available = 0;
};

/// The stage with the largest of these fractions ({"read": 0.1, ...}), and its fraction; nullptr: all are 0.
std::pair<const char*, double> busiest_stage(const nlohmann::json& fractions);
/// "decoding"
const char* doing(const std::string& stage);
/// "Give the server more cores (`server.threads`), or keep decoded images in memory: `cache: decoded` would
/// need 2.1 GB."
std::string remedy(const std::string& stage, const CacheSize& cache);

}  // namespace headrace::server::status
