// Advice for the stage of the workers that is the bottleneck.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

namespace headrace::server::status {

/// The resources that the server uses, and those that it could use.
struct Resources {
  std::optional<std::uint64_t> decoded_cache;  ///< bytes of a cache of all decoded images, if it would help
  std::uint64_t memory_available = 0;          ///< bytes
  std::uint64_t workers = 1, cpus = 1;
};

/// The stage with the largest of these fractions ({"read": 0.1, ...}), and its fraction; nullptr: all are 0.
std::pair<const char*, double> busiest_stage(const nlohmann::json& fractions);
/// "decoding"
const char* doing(const std::string& stage);
/// Why a stream is slow although its workers are idle, and the remedy. `waits`: the workers wait for reads.
std::string make_more_ahead(bool waits);
/// From this part of the workers' time on, waits for CPUs are worth a sentence.
inline constexpr double kCrowded = 0.25;
/// Says that the workers waited for CPUs for this part of their time, and what to do.
std::string waits_for_cpus(double part, const Resources& server);
/// Sentences that say what to change.
std::string remedy(const std::string& stage, const Resources& server);

}  // namespace headrace::server::status
