// The status page and the JSON behind it: its HTTP routes, and the figures that they need.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "server/exec/engine.h"
#include "server/metrics/http.h"
#include "server/status/history.h"
#include "server/status/samples.h"

namespace headrace::server::status {

class Status {
 public:
  using Stats = std::function<nlohmann::json()>;
  /// Why a request may not see samples and file names of the datasets; empty: it may.
  using Obstacle = std::function<std::string(const metrics::HttpRequest&)>;

  /// `engine`, and what `stats` (session/collector.h) refers to, must outlive it.
  Status(const exec::Engine& engine, Stats stats, Obstacle obstacle);

  /// Keeps the figures for later; call it at least once a second.
  void tick(std::uint64_t now_ns);
  /// `/` and `/api/v1/...`, as configs/status.md describes them. The handlers refer to this object.
  [[nodiscard]] std::vector<metrics::HttpServer::Route> routes();

 private:
  /// `details`: with names of files.
  [[nodiscard]] nlohmann::json report(bool details) const;
  [[nodiscard]] metrics::HttpReply events(const metrics::HttpRequest& request) const;
  metrics::HttpReply samples(const metrics::HttpRequest& request);
  metrics::HttpReply image(const metrics::HttpRequest& request, bool original);

  const Stats stats_;
  const Obstacle obstacle_;
  const std::uint64_t begun_ns_;
  History history_;
  Samples samples_;
};

}  // namespace headrace::server::status
