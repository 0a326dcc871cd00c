// A running server: directory, engine, control socket, sessions and metrics. run() serves them on the
// caller's thread.
//
// Thread safety: ask_to_stop(): any thread. Everything else: one thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>

#include "clientlib/ring/futex.h"
#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"
#include "server/assembly/share_rows.h"
#include "server/config/config.h"
#include "server/exec/engine.h"
#include "server/metrics/http.h"
#include "server/session/bridge.h"
#include "server/session/collector.h"
#include "server/session/control.h"
#include "server/session/directory.h"
#include "server/session/feeder.h"
#include "server/session/service_manager.h"
#include "server/session/sessions.h"
#include "server/session/sharing_watch.h"
#include "server/status/status.h"

namespace headrace::server::session {

class Server {
 public:
  /// Does all work that can fail. When it returns, the sockets are bound and the workers run. `opened` is
  /// called once the sources are open.
  static Result<std::unique_ptr<Server>> start(const config::Config& config,
                                               const std::function<void()>& opened = {});
  ~Server();

  /// Serves until a signal of stop_signals() (which the caller must have blocked in all threads), a `drain`
  /// request, or end of file on `parent_fd`. Then it drains: it grants no more batches, and waits at most
  /// drain_timeout for leases to be released. Tells `manager`, if any, that it is alive, and when it drains.
  void run(int parent_fd = -1, ServiceManager* manager = nullptr);
  /// Makes run() drain and return. Any thread may call it.
  void ask_to_stop();

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_.path(); }
  /// nullopt: server.metrics is off.
  [[nodiscard]] std::optional<std::string> metrics_url() const {
    return http_ ? std::optional(http_->url()) : std::nullopt;
  }
  [[nodiscard]] exec::Engine& engine() { return *engine_; }
  [[nodiscard]] const Collector& collector() const { return *collector_; }

 private:
  Server(config::ServerConfig config, Directory directory);
  /// start(), which may throw what the libraries throw if the system refuses a descriptor or a thread.
  static Result<std::unique_ptr<Server>> build(const config::Config& config,
                                               const std::function<void()>& opened);
  /// Why its sender may not see samples of the datasets; empty: they may. See server.metrics.images.
  [[nodiscard]] std::string image_obstacle(const metrics::HttpRequest& request) const;
  /// /metrics, /healthz, /readyz, and those of the status page.
  [[nodiscard]] std::vector<metrics::HttpServer::Route> routes();
  /// Binds the sockets of streams whose batches another process feeds.
  Result<void> start_feeders();
  /// Gives clients of failed feeds time to read the reason before they lose the server.
  void deliver_feed_errors();
  /// Calls `work` for each stream. An exception is logged, and the other streams continue.
  template <class F>
  void for_each_stream(const char* doing, F work);
  void tick(std::uint64_t now_ns);
  /// Logs when clients can no longer reach the sockets, and when they can again.
  void watch_directory();
  void serve_until(const std::function<bool()>& done, int signals, int parent_fd);

  config::ServerConfig config_;
  Directory directory_;
  std::unique_ptr<exec::Engine> engine_;
  WatchedGroups sharing_;
  std::unique_ptr<Collector> collector_;
  std::unique_ptr<Sessions> sessions_;
  std::vector<std::unique_ptr<Feeder>> feeders_;
  std::unique_ptr<Bridge> bridge_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<status::Status> status_;  ///< if there is an HTTP port
  std::unique_ptr<metrics::HttpServer> http_;
  ring::UniqueFd signals_;  ///< readable when a signal of stop_signals() is pending
  std::stop_source reads_;  ///< cancels network reads of sources
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> ticked_ns_{ring::monotonic_ns()};  ///< the last periodic check; first: the start
  bool parent_ended_ = false;
  std::atomic<bool> listens_{false};   ///< all sockets are bound
  std::string lost_;                   ///< Directory::loss() at the last periodic check
  ServiceManager* manager_ = nullptr;  ///< while run() runs
};

}  // namespace headrace::server::session
