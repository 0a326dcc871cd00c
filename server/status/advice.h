// Advice for the stage of the workers that is the bottleneck.
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
/// Sentences that say what to change.
std::string remedy(const std::string& stage, const CacheSize& cache);

}  // namespace headrace::server::status
