// The thread pool that serves all streams, and the one lock under which slots change hands.
//
// Workers claim slices of a slot's rows without a lock and take the lock per batch: to start it, to complete
// it, to take acks in. The worker that completes a slot publishes and grants it; there is no hop to another
// thread. Clients that sleep are woken once the lock is given up: that takes longer than all that is done
// under it. A worker without work sleeps in epoll on the clients' doorbells, which they ring as
// ControlHeader::server_idle says: an idle server costs no CPU, and a busy one no wakes per batch.
//
// Before they sleep, workers make tiles of the images in caches, one image at a time, as long as there are
// any that wait for it. One worker is kept free of that for the clients; where there is but one, a batch
// waits for one image at most.
//
// Thread safety: all public members, any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "clientlib/ring/spin.h"
#include "clientlib/ring/unique_fd.h"
#include "server/cache/idle_tiler.h"
#include "server/exec/stream.h"
#include "server/metrics/counters.h"
#include "server/placement/placement.h"

namespace headrace::server::exec {

class Engine {
 public:
  static constexpr std::size_t kMaxStreams = 64;  ///< pick() sorts them on the stack

  /// `placement`: where workers stay; of as many as there are threads, or empty. `tilers`: of the caches that
  /// the streams read from.
  Engine(std::vector<std::unique_ptr<Stream>> streams, unsigned threads, placement::Placement placement = {},
         std::vector<std::shared_ptr<cache::IdleTiler>> tilers = {});
  ~Engine();  ///< stops and joins

  void start();
  void stop();

  [[nodiscard]] std::size_t stream_count() const { return streams_.size(); }
  [[nodiscard]] const Stream& stream(std::size_t index) const { return *streams_[index]; }
  [[nodiscard]] Result<std::size_t> find(
      const std::string& name) const;  ///< kNoSuchStream, with the names that there are
  [[nodiscard]] unsigned threads() const { return static_cast<unsigned>(workers_.size()); }

  /// Runs `what` on a stream under the lock, then lets the workers look again.
  template <class F>
  auto with(std::size_t index, F&& what) {
    const std::scoped_lock lock(mutex_);
    const Kick kick{*this};
    return what(*streams_[index]);
  }
  /// The same, without waking anybody.
  template <class F>
  auto look(std::size_t index, F&& what) const {
    const std::scoped_lock lock(mutex_);
    return what(*streams_[index]);
  }

  /// A descriptor that wakes a worker when written (an eventfd): the client's doorbell. Watched until
  /// `unwatch`.
  Result<ring::UniqueFd> make_doorbell();
  void unwatch(const ring::UniqueFd& doorbell);

  [[nodiscard]] metrics::StreamTotals totals(std::size_t stream) const;
  [[nodiscard]] std::uint64_t stream_busy_ns(std::size_t stream) const;
  [[nodiscard]] std::uint64_t busy_ns() const;  ///< of all workers
  /// The longest time that a worker has now been in one slice; for /readyz: workers stall.
  [[nodiscard]] std::uint64_t longest_slice_ns(std::uint64_t now_ns) const;

 private:
  struct Worker {
    std::thread thread;
    std::unique_ptr<metrics::StreamCounters[]> counters;  ///< one per stream
    std::atomic<std::uint64_t> slice_since_ns{0};
    ring::SpinBudget spin;
    std::optional<decode::JpegTiler> tiler;
    std::uint64_t busy_since_ns = 0;  ///< [lock] without a rest, or since it called another one; 0: rested
    bool away = false;                ///< [lock] will not look again soon
    struct Wake {
      const ring::RingWriter* ring;
      std::uint64_t lanes;  ///< as bits
    };
    std::vector<Wake> wakes;  ///< of clients, owed once the lock is given up; kept to spare allocations
  };
  struct Kick {
    Engine& engine;
    ~Kick() { engine.kick(); }
  };

  void run(std::size_t index);
  /// [lock] One job's slice, the lock given up meanwhile. False: there was nothing to do.
  bool run_one(Worker& worker, RowScratch& scratch, std::unique_lock<std::mutex>& lock);
  std::shared_ptr<FillJob> pick(std::uint64_t now_ns);  ///< [lock]
  void pump_all(std::uint64_t now_ns);                  ///< [lock]
  void collect_wakes(Worker& worker);                   ///< [lock]
  static void wake_clients(Worker& worker);             ///< not under the lock: others would wait for it
  void kick();                                          ///< [lock] wakes one sleeping worker, if any sleeps
  void ring_wake();
  /// [lock] Until there may be work: looks again for a while if that has lately been enough, then sleeps.
  void park(Worker& worker, RowScratch& scratch, std::unique_lock<std::mutex>& lock);
  /// [lock] Makes tiles of one image, the lock given up meanwhile. False: none waits, or others do.
  bool tile(Worker& worker, std::unique_lock<std::mutex>& lock);
  /// [lock] True once there are acks, which a worker that sleeps would be called for.
  bool looks_again(std::uint64_t until_ns, std::unique_lock<std::mutex>& lock);
  void sleep(std::unique_lock<std::mutex>& lock);
  void announce();                      ///< [lock] tells the clients when to ring
  [[nodiscard]] bool has_acks() const;  ///< [lock]

  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Worker>> workers_;
  const placement::Placement placement_;
  const std::vector<std::shared_ptr<cache::IdleTiler>> tilers_;
  ring::UniqueFd epoll_, wake_;
  mutable std::mutex mutex_;
  unsigned sleepers_ = 0;
  unsigned tiling_ = 0;  ///< workers
  ring::ServerIdle idle_ = ring::kServerAwake;
  bool looking_ = false;  ///< a worker looks again before it sleeps
  std::atomic<bool> stopping_{false};
};

}  // namespace headrace::server::exec
