#include "server/config/read.h"

#include <array>

#include "server/config/cpus.h"
#include "server/config/transforms.h"
#include "server/config/units.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

json part(const json& value, const char* name) {
  const auto found = value.find(name);
  return found == value.end() ? json::object() : *found;
}

template <class Enum, std::size_t N>
Enum word(const json& value, const char* name, Enum otherwise,
          const std::array<std::pair<const char*, Enum>, N>& words) {
  const auto text = value.value(name, std::string());
  for (const auto& [known, meaning] : words)
    if (text == known) return meaning;
  return otherwise;
}

std::chrono::milliseconds duration(const json& value, const char* name, std::chrono::milliseconds otherwise) {
  return parse_duration(value.value(name, std::string())).value_or(otherwise);
}

}  // namespace

ServerConfig read_server(const json& value, const std::filesystem::path& folder,
                         const Environment& environment) {
  ServerConfig out;
  out.directory = value.contains("directory") ? absolute(folder, value["directory"].get<std::string>())
                                              : default_directory(environment);
  const json allow = part(value, "allow");
  out.allow.uids = allow.value("uids", out.allow.uids);
  out.allow.gids = allow.value("gids", out.allow.gids);
  const auto threads = value.find("threads");
  out.threads = threads != value.end() && threads->is_number() ? threads->get<unsigned>() : default_threads();
  out.numa = word(value, "numa", out.numa,
                  std::array<std::pair<const char*, Numa>, 2>{{{"auto", Numa::kAuto}, {"off", Numa::kOff}}});
  const json metrics = part(value, "metrics");
  if (metrics.is_object()) {
    out.metrics = MetricsConfig{};
    out.metrics->address = metrics.value("address", out.metrics->address);
    out.metrics->port = metrics.value("port", out.metrics->port);
  }
  out.evict_after = duration(value, "evict_after", out.evict_after);
  out.group_grace = duration(value, "group_grace", out.group_grace);
  out.drain_timeout = duration(value, "drain_timeout", out.drain_timeout);
  static constexpr std::array<std::pair<const char*, LogLevel>, 6> kLevels{{{"trace", LogLevel::kTrace},
                                                                            {"debug", LogLevel::kDebug},
                                                                            {"info", LogLevel::kInfo},
                                                                            {"warning", LogLevel::kWarning},
                                                                            {"error", LogLevel::kError},
                                                                            {"off", LogLevel::kOff}}};
  out.log_level = word(value, "log_level", out.log_level, kLevels);
  return out;
}

StreamConfig read_stream(const json& value, const std::filesystem::path& folder, const ServerConfig& server) {
  StreamConfig out;
  out.source = value.at("source").get<std::string>();
  out.part = value.value("part", out.part);
  out.shuffle = value.value("shuffle", out.shuffle);
  if (const auto sampler = value.find("sampler"); sampler != value.end()) {
    out.sampler = read_sampler(*sampler, folder);
    const auto* list = out.sampler ? std::get_if<ListSampler>(&*out.sampler) : nullptr;
    out.shuffle = list != nullptr ? list->shuffle : *sampler != "sequential";
  }
  out.seed = value.value("seed", out.seed);
  out.batch_size = value.value("batch_size", out.batch_size);
  out.last = word(value, "last", out.last,
                  std::array<std::pair<const char*, LastBatch>, 3>{
                      {{"short", LastBatch::kShort}, {"pad", LastBatch::kPad}, {"drop", LastBatch::kDrop}}});
  out.delivery = word(value, "delivery", out.delivery,
                      std::array<std::pair<const char*, Delivery>, 2>{
                          {{"broadcast", Delivery::kBroadcast}, {"shard", Delivery::kShard}}});
  out.plan = read_plan(value);
  out.resident = value.contains("residence");
  out.on_error = word(value, "on_error", out.on_error,
                      std::array<std::pair<const char*, OnError>, 2>{
                          {{"replace", OnError::kReplace}, {"fail", OnError::kFail}}});
  out.max_bad = value.value("max_bad", out.max_bad);
  const json ring = part(value, "ring");
  out.ring.prefetch = ring.value("prefetch", out.ring.prefetch);
  // A device's client holds a batch until its copy has ended: with fewer, copies wait for one another.
  constexpr std::uint32_t kForDevices = 5;
  out.ring.max_leases = ring.value("max_leases", out.plan.on_device ? kForDevices : out.ring.max_leases);
  out.ring.max_clients = ring.value("max_clients", out.ring.max_clients);
  // Allowed users can only read, unless the configuration says otherwise.
  out.ring.data_access =
      word(ring, "data_access", server.allow.empty() ? Access::kReadWrite : Access::kReadOnly,
           std::array<std::pair<const char*, Access>, 2>{
               {{"read_write", Access::kReadWrite}, {"read_only", Access::kReadOnly}}});
  const json sharing = part(value, "sharing");
  out.sharing.max_lag = sharing.value("max_lag", out.ring.prefetch);
  out.sharing.on_lag = word(
      sharing, "on_lag", out.sharing.on_lag,
      std::array<std::pair<const char*, OnLag>, 2>{{{"detach", OnLag::kDetach}, {"wait", OnLag::kWait}}});
  out.sharing.wait_for = sharing.value("wait_for", out.sharing.wait_for);
  out.sharing.wait_timeout = duration(sharing, "wait_timeout", out.sharing.wait_timeout);
  return out;
}

}  // namespace headrace::server::config
