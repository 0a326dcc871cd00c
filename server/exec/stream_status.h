// The status of a stream, readable without the engine's lock: metrics, `ls` and `stats` read it while
// batches are handed over.
//
// Thread safety: members marked [lock] are called under the engine's mutex; any thread may call the others.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "clientlib/ring/ring_writer.h"
#include "clientlib/wire/protocol.h"
#include "headrace/cursor.h"
#include "headrace/error.h"
#include "server/exec/failure.h"
#include "server/exec/published.h"
#include "server/exec/sample_maker.h"
#include "server/publish/ledger.h"
#include "server/sampler/order.h"

namespace headrace::server::exec {

/// Written after each check that changed something. Times are ring::monotonic_ns(), durations are in ns.
struct StreamFigures {
  std::uint64_t free = 0, filling = 0, ready = 0, leased = 0;  ///< slots
  std::uint64_t jobs = 0;                                      ///< batches under construction
  std::uint64_t blocked_ns = 0;        ///< total time with a full ring, up to blocked_since_ns
  std::uint64_t blocked_since_ns = 0;  ///< 0: the ring is not full
  std::uint64_t last_batch_ns = 0;     ///< 0: no batch yet
  std::uint64_t detachments = 0, leases_reclaimed = 0, checksum_mismatches = 0;
  std::uint64_t granted = 0;          ///< samples of all batches that clients were granted
  std::uint64_t awaited_clients = 0;  ///< clients missing at the stream's gate before the first grant
  /// When the stream begins without them; 0: none is missing, or none has called next().
  std::uint64_t begins_at_ns = 0;
  std::uint64_t missing_ranks = 0;  ///< in groups with attached clients

  friend bool operator==(const StreamFigures&, const StreamFigures&) = default;
};

/// The figures of one lane.
struct LaneFigures {
  Cursor next;  ///< the first batch that it has not been granted
  std::uint64_t leases = 0;
  std::uint64_t fenced = 0;
  std::uint64_t granted = 0;         ///< samples
  std::uint64_t first_grant_ns = 0;  ///< 0: none yet
  std::uint64_t asked = 0;           ///< 1: its client has asked for a batch (sharing.wait_for)
  std::uint64_t waits = 0;           ///< 1: it yields the workers to a client behind (sharing.patience)
};

/// An attached client.
struct ClientStatus {
  static constexpr std::uint32_t kMostLag = wire::kMostBehind;

  std::string client, group;
  std::uint32_t rank = 0;
  std::uint64_t rows_per_batch = 0;  ///< of all ranks together
  std::optional<std::uint64_t> row;  ///< that it needs next, as the window numbers rows; nullopt: no window
  std::uint32_t lag = 0;  ///< batches behind the foremost client of this stream, counted up to kMostLag
  /// The same, behind the foremost client of this stream and of the streams that share rows with it.
  std::uint32_t sharing_lag = 0;
  /// Seconds since the foremost client was at this client's position: measured where rows are shared
  /// (session/stream_snapshot.h), else `lag` at the average pace of this stream's foremost client. nullopt:
  /// not known.
  std::optional<double> lag_seconds;
  LaneFigures lane;
  std::optional<ring::RingWriter::ClientReport> report;  ///< nullopt: a lane without a client
};

class StreamStatus {
 public:
  static constexpr std::uint32_t kRanksCounted = 1024;  ///< started_by_rank() leaves out higher ranks

  /// All references must outlive it.
  StreamStatus(std::string stream, const Failure& failure, const ring::RingWriter& ring,
               const SampleMaker& maker);

  // --- failure
  [[nodiscard]] bool failed() const { return failure_.failed(); }
  [[nodiscard]] Error failure() const;

  // --- figures
  void publish(const StreamFigures& figures) { figures_.store(figures); }  ///< [lock]
  [[nodiscard]] StreamFigures figures() const { return figures_.load(); }
  /// How long the ring has been full, up to now. Never less than an earlier result: a worker may have ended
  /// the wait before `now_ns` without having published it yet, and Prometheus interprets a falling counter as
  /// a restart.
  [[nodiscard]] std::uint64_t blocked_ns(const StreamFigures& figures, std::uint64_t now_ns) const;
  void started(std::uint32_t rank);  ///< [lock] counts a batch of this rank
  [[nodiscard]] std::vector<std::uint64_t> started_by_rank() const;

  // --- clients
  struct Client {
    std::string client, group;
    std::uint32_t rank = 0;
    sampler::EpochPlan plan;
  };
  /// [lock] Runs `attach`, which changes the lane's segments, while no thread reads them.
  template <class F>
  auto attach(std::uint32_t lane, Client client, F&& attach) {
    const std::scoped_lock lock(clients_mutex_);
    clients_[lane] = std::move(client);
    return attach();
  }
  /// [lock] The same for a client that detaches; `last` is its position.
  template <class F>
  void detach(std::uint32_t lane, const publish::Position& last, F&& detach) noexcept {
    const std::scoped_lock lock(clients_mutex_);
    clients_[lane].reset();
    last_detached_ = last;
    detach();
  }
  void publish(std::uint32_t lane, const LaneFigures& figures) { lanes_[lane].store(figures); }  ///< [lock]
  [[nodiscard]] std::vector<ClientStatus> clients() const;
  /// The position of the foremost client, or its last position if it has detached.
  [[nodiscard]] publish::Position foremost() const;

 private:
  const std::string stream_;
  const Failure& failure_;
  const ring::RingWriter& ring_;
  const SampleMaker& maker_;
  Published<StreamFigures> figures_;
  mutable std::atomic<std::uint64_t> blocked_reported_{0};
  std::vector<Published<LaneFigures>> lanes_;
  std::array<std::atomic<std::uint64_t>, kRanksCounted> started_{};
  mutable std::mutex clients_mutex_;
  std::vector<std::optional<Client>> clients_;  // guarded by clients_mutex_, as is the next
  publish::Position last_detached_;             ///< position of the client that detached last
};

}  // namespace headrace::server::exec
