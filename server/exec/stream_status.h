// What a stream shows of itself without the engine's lock: metrics, the status page and `ls` read it while
// batches are handed over.
//
// Thread safety: members marked [lock] are called under the engine's mutex; the others from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "clientlib/ring/ring_writer.h"
#include "headrace/cursor.h"
#include "headrace/error.h"
#include "server/exec/published.h"
#include "server/publish/ledger.h"
#include "server/sampler/order.h"

namespace headrace::server::exec {

/// Written after each look that changed something. Times are of ring::monotonic_ns(), durations in ns.
struct StreamFigures {
  std::uint64_t free = 0, filling = 0, ready = 0, leased = 0;  ///< slots
  std::uint64_t jobs = 0;                                      ///< batches under construction
  std::uint64_t blocked_ns = 0;        ///< how long the ring was full, up to blocked_since_ns
  std::uint64_t blocked_since_ns = 0;  ///< 0: it is not full
  std::uint64_t last_batch_ns = 0;     ///< 0: no batch yet
  std::uint64_t detachments = 0, leases_reclaimed = 0;
  std::uint64_t awaited_clients = 0;  ///< that must still come before the first batch is granted (`wait_for`)
  std::uint64_t missing_ranks = 0;    ///< of groups with attached clients
  publish::Place left;                ///< where the client stood that left last
};

/// A lane's own.
struct LaneFigures {
  Cursor next;  ///< the first batch that it was not granted
  std::uint64_t leases = 0;
  std::uint64_t fenced = 0;
};

/// An attached client.
struct ClientStatus {
  std::string client, group;
  std::uint32_t rank = 0;
  std::uint32_t lag = 0;  ///< batches behind the foremost client, counted up to 1000
  LaneFigures lane;
  std::optional<ring::RingWriter::ClientWord> word;  ///< nullopt: the server's own lane
};

class StreamStatus {
 public:
  static constexpr std::uint32_t kRanksCounted = 1024;  ///< batches of higher ranks are not counted

  StreamStatus(std::string stream, const ring::RingWriter& ring);

  // --- failure
  /// Stops the stream for good. False: it had stopped; the first reason is kept.
  bool stop(const Error& reason);
  void stop() noexcept { failed_.store(true, std::memory_order_release); }  ///< no memory for a reason
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] Error failure() const;

  // --- figures
  void publish(const StreamFigures& figures) { figures_.store(figures); }  ///< [lock]
  [[nodiscard]] StreamFigures figures() const { return figures_.load(); }
  /// How long the ring was full, up to now. Never less than what another call returned: a worker may have
  /// ended the wait at a time before `now_ns` and not published it yet, and Prometheus takes a counter that
  /// falls for a restart.
  [[nodiscard]] std::uint64_t blocked_ns(const StreamFigures& figures, std::uint64_t now_ns) const;
  void started(std::uint32_t rank);  ///< [lock] a batch of this rank
  [[nodiscard]] std::vector<std::uint64_t> started_by_rank() const;

  // --- clients
  struct Client {
    std::string client, group;
    std::uint32_t rank = 0;
    sampler::EpochPlan plan;
  };
  /// [lock] Runs `attach`, which changes the lane's segments, while nobody reads them.
  template <class F>
  auto attach(std::uint32_t lane, Client client, F&& attach) {
    const std::scoped_lock lock(clients_mutex_);
    clients_[lane] = std::move(client);
    return attach();
  }
  template <class F>
  void detach(std::uint32_t lane, F&& detach) noexcept {  ///< [lock]
    const std::scoped_lock lock(clients_mutex_);
    clients_[lane].reset();
    detach();
  }
  void publish(std::uint32_t lane, const LaneFigures& figures) { lanes_[lane].store(figures); }  ///< [lock]
  [[nodiscard]] std::vector<ClientStatus> clients() const;
  /// Of the client that is farthest, or stood there when it left.
  [[nodiscard]] publish::Place foremost() const;

 private:
  [[nodiscard]] publish::Place foremost_of_attached() const;  ///< under clients_mutex_; {} without

  const std::string stream_;
  const ring::RingWriter& ring_;
  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;
  Error failure_;
  Published<StreamFigures> figures_;
  mutable std::atomic<std::uint64_t> blocked_reported_{0};
  std::vector<Published<LaneFigures>> lanes_;
  std::array<std::atomic<std::uint64_t>, kRanksCounted> started_{};
  mutable std::mutex clients_mutex_;
  std::vector<std::optional<Client>> clients_;
};

}  // namespace headrace::server::exec
