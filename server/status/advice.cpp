#include "server/status/advice.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

namespace headrace::server::status {
namespace {

std::string gigabytes(std::uint64_t bytes) {
  return fmt::format("{:.2g} GB", static_cast<double>(bytes) / 1e9);
}

std::string faster_decoding(const CacheSize& cache) {
  const std::string cores = "Give the server more cores (`server.threads`)";
  if (!cache.needed) return cores + ", or pack the dataset as tiles (`headrace pack`)";
  if (*cache.needed <= cache.available)
    return fmt::format(
        "{}, or keep decoded images in memory: `cache: decoded` would need about {} of the {} that are "
        "available",
        cores, gigabytes(*cache.needed), gigabytes(cache.available));
  return fmt::format(
      "{}, or pack the dataset as tiles (`headrace pack`); `cache: decoded` would need about {}, and {} are "
      "available",
      cores, gigabytes(*cache.needed), gigabytes(cache.available));
}

}  // namespace

std::pair<const char*, double> busiest_stage(const nlohmann::json& fractions) {
  std::pair<const char*, double> most{nullptr, 0};
  for (const char* stage : {"read", "decode", "transform"})
    if (const double part = fractions.at(stage).get<double>(); part > most.second) most = {stage, part};
  return most;
}

const char* doing(const std::string& stage) {
  return stage == "read" ? "reading" : stage == "decode" ? "decoding" : "transforming";
}

std::string remedy(const std::string& stage, const CacheSize& cache) {
  if (stage == "read")
    return "Keep the files in memory (`cache: encoded`), read ahead (`io`), or pack the dataset (`headrace "
           "pack`).";
  if (stage == "decode") return faster_decoding(cache) + ".";
  return "Give the server more cores (`server.threads`), or run color transforms on the GPU (`device: gpu`).";
}

}  // namespace headrace::server::status
