// Collects Prometheus metrics and the control protocol's `stats` from one snapshot of the engine. Names
// follow Prometheus's rules: base units, `_total` for counters. Thread safety: any thread.
#pragma once

#include <prometheus/collectable.h>

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/exec/engine.h"
#include "server/session/caches.h"
#include "server/session/open_source.h"
#include "server/session/sessions.h"

namespace headrace::server::session {

class Collector : public prometheus::Collectable {
 public:
  /// Samples decoded by streams that share rows, by complete intervals of SharingWatch.
  struct SharingCounts {
    std::string streams;  ///< their names
    metrics::Count decoded;
    metrics::Count again;  ///< of these: decoded again because the jobs are too far apart
  };

  Collector(const exec::Engine& engine, CachesInUse caches, std::vector<RemoteUse> remotes = {})
      : engine_(engine), caches_(std::move(caches)), remotes_(std::move(remotes)) {}

  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override;
  [[nodiscard]] std::string exposition() const;  ///< Prometheus text format 0.0.4
  [[nodiscard]] nlohmann::json stats() const;
  /// Malformed control messages; written by the session thread.
  metrics::Count& bad_messages() { return bad_messages_; }
  /// Adds the counts of a group, which the session thread writes. Before the first Collect().
  SharingCounts& add_sharing(std::string streams);
  /// Empty if ready: every stream has a READY slot, waits for a client, or keeps its clients supplied.
  /// Otherwise the reason.
  [[nodiscard]] std::string not_ready() const;

 private:
  /// Adds the metrics of network reads.
  [[nodiscard]] std::vector<prometheus::MetricFamily> with_network(
      std::vector<prometheus::MetricFamily> families) const;

  const exec::Engine& engine_;
  const CachesInUse caches_;
  const std::vector<RemoteUse> remotes_;
  metrics::Count bad_messages_;
  std::deque<SharingCounts> sharing_;  ///< a deque: its elements stay in place
};

}  // namespace headrace::server::session
