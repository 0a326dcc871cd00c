// Collects Prometheus metrics and the control protocol's `stats` from one snapshot of the engine. Names
// follow Prometheus's rules: base units, `_total` for counters. Thread safety: any thread.
#pragma once

#include <prometheus/collectable.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/assembly/caches.h"
#include "server/assembly/open_source.h"
#include "server/exec/engine.h"
#include "server/session/sessions.h"
#include "server/session/sharing_watch.h"

namespace headrace::server::session {

class Collector : public prometheus::Collectable {
 public:
  /// `engine` and `sharing` must outlive it.
  Collector(const exec::Engine& engine, const WatchedGroups& sharing, assembly::CachesInUse caches,
            std::vector<assembly::RemoteUse> remotes = {})
      : engine_(engine), sharing_(sharing), caches_(std::move(caches)), remotes_(std::move(remotes)) {}

  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override;
  [[nodiscard]] std::string exposition() const;  ///< Prometheus text format 0.0.4
  [[nodiscard]] nlohmann::json stats() const;
  /// Malformed control messages; written by the session thread.
  metrics::Count& bad_messages() { return bad_messages_; }
  /// Empty if ready: every stream has a READY slot, waits for a client, or keeps its clients supplied.
  /// Otherwise the reason.
  [[nodiscard]] std::string not_ready() const;

 private:
  /// Adds the metrics of network reads.
  [[nodiscard]] std::vector<prometheus::MetricFamily> with_network(
      std::vector<prometheus::MetricFamily> families) const;

  const exec::Engine& engine_;
  const WatchedGroups& sharing_;
  const assembly::CachesInUse caches_;
  const std::vector<assembly::RemoteUse> remotes_;
  metrics::Count bad_messages_;
};

}  // namespace headrace::server::session
