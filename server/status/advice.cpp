#include "server/status/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "clientlib/base/human.h"

namespace headrace::server::status {
namespace {

std::string more_cpus(const Resources& server) {
  if (server.workers < server.cpus)
    return fmt::format("Raise `server.threads`: {} of {} CPUs have a worker", server.workers, server.cpus);
  return "Give the server more CPUs";
}

/// "2.2GB", as a configuration has it; not less than `bytes`.
std::string size_in_yaml(std::uint64_t bytes) {
  const double tenths = std::ceil(static_cast<double>(bytes) / 1e8);
  return fmt::format("{:g}GB", std::max(1.0, tenths) / 10);
}

std::string faster_decoding(const Resources& server) {
  if (server.decoded_cache && *server.decoded_cache <= server.memory_available)
    return fmt::format(
        "{}, or keep decoded images in memory: the source's `cache: {{decoded: {}}}` fits into the {} "
        "that are available",
        more_cpus(server), size_in_yaml(*server.decoded_cache), human_bytes(server.memory_available));
  std::string text = fmt::format("{}, or pack the dataset as tiles (`headrace pack`)", more_cpus(server));
  if (server.decoded_cache)
    text += fmt::format("; a cache of all decoded images would need {}, and {} are available",
                        human_bytes(*server.decoded_cache), human_bytes(server.memory_available));
  return text;
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

std::string make_more_ahead(bool waits) {
  return waits
             ? "they wait for reads. Raise `io.threads` of the stream's source, or keep its files on a local "
               "disk (`io.disk_cache`)"
             : "too few batches are made ahead. Raise the stream's `ring.prefetch`";
}

std::string waits_for_cpus(double part, const Resources& server) {
  const std::string waits = fmt::format(
      "for {:.0f}% of their time, the workers waited for a CPU, because other threads used it or a CPU limit "
      "applied",
      100 * part);
  if (server.workers > server.cpus)
    return fmt::format("{}. The server has {} workers for {} CPU{}: lower `server.threads`", waits,
                       server.workers, server.cpus, server.cpus == 1 ? "" : "s");
  return waits + ". Stop other programs, raise the limit, or lower `server.threads`";
}

std::string remedy(const std::string& stage, const Resources& server) {
  if (stage == "read")
    return "Keep the files in memory (the source's `cache: {encoded: SIZE}`), read ahead (`io`), or pack the "
           "dataset (`headrace pack`).";
  if (stage == "decode") return faster_decoding(server) + ".";
  return more_cpus(server) +
         ", or make transforms cheaper: a smaller crop before them, a smaller `kernel_size` of blur, a lower "
         "`p`. Color transforms can run on the GPU (`device: gpu`); blur cannot.";
}

}  // namespace headrace::server::status
