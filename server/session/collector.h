// Collects Prometheus metrics and the control protocol's `stats` from one snapshot of the engine. Names
// follow Prometheus's rules: base units, `_total` for counters. Thread safety: any thread.
#pragma once

#include <prometheus/collectable.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/assembly/caches.h"
#include "server/assembly/open_source.h"
#include "server/exec/engine.h"
#include "server/session/bridge_orders.h"
#include "server/session/sessions.h"
#include "server/session/sharing_watch.h"

namespace headrace::server::session {

class Collector : public prometheus::Collectable {
 public:
  /// `engine` and `sharing` must outlive it.
  Collector(const exec::Engine& engine, const WatchedGroups& sharing, assembly::CachesInUse caches,
            std::vector<assembly::RemoteUse> remotes, std::shared_ptr<const BridgeOrders> orders)
      : engine_(engine),
        sharing_(sharing),
        caches_(std::move(caches)),
        remotes_(std::move(remotes)),
        orders_(std::move(orders)) {}

  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override;
  [[nodiscard]] std::string exposition() const;  ///< Prometheus text format 0.0.4
  [[nodiscard]] nlohmann::json stats() const;
  /// Malformed control messages; written by the session thread.
  metrics::Count& bad_messages() { return bad_messages_; }
  /// Empty if ready: every stream has a READY slot, waits for a client, or keeps its clients supplied.
  /// Otherwise the reason.
  [[nodiscard]] std::string not_ready() const;

 private:
  /// What other nodes have made.
  [[nodiscard]] nlohmann::json nodes_as_json() const;
  /// Adds the metrics of network reads and of other nodes.
  [[nodiscard]] std::vector<prometheus::MetricFamily> with_network(
      std::vector<prometheus::MetricFamily> families) const;

  const exec::Engine& engine_;
  const WatchedGroups& sharing_;
  const assembly::CachesInUse caches_;
  const std::vector<assembly::RemoteUse> remotes_;
  const std::shared_ptr<const BridgeOrders> orders_;
  metrics::Count bad_messages_;
};

}  // namespace headrace::server::session
