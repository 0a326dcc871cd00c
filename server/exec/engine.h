// The thread pool that serves all streams, and the one lock under which slots change hands.
//
// Workers claim slices of a slot's rows without a lock and take the lock per batch: to start it, to complete
// it and to process acks. The worker that completes a slot publishes and grants it; no other thread is
// involved. Sleeping clients are woken after the lock is released, because waking them takes longer than
// everything that is done under it. A worker without work sleeps in epoll on the clients' doorbells, which
// clients ring as ControlHeader::server_idle says: an idle server costs no CPU, and a busy one no wake-up per
// batch.
//
// Before they sleep, workers tile the images in caches (IdleTiler), one image at a time, while any remain.
// One worker is kept free of tiling for the clients; if there is only one worker, a batch waits for one image
// at most.
//
// Thread safety: any thread may call any public member.
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

  /// `placement`: where workers run; for as many workers as there are threads, or empty. `tilers`: those of
  /// the caches that the streams read from.
  Engine(std::vector<std::unique_ptr<Stream>> streams, unsigned threads, placement::Placement placement = {},
         std::vector<std::shared_ptr<cache::IdleTiler>> tilers = {});
  ~Engine();  ///< stops and joins

  void start();
  void stop();

  [[nodiscard]] std::size_t stream_count() const { return streams_.size(); }
  [[nodiscard]] const Stream& stream(std::size_t index) const { return *streams_[index]; }
  [[nodiscard]] Result<std::size_t> find(
      const std::string& name) const;  ///< kNoSuchStream lists the names that exist
  [[nodiscard]] unsigned threads() const { return static_cast<unsigned>(workers_.size()); }

  /// Runs `what` on a stream under the lock, then lets the workers check for work.
  template <class F>
  auto with(std::size_t index, F&& what) {
    const std::scoped_lock lock(mutex_);
    const Kick kick{*this, *streams_[index]};
    return what(*streams_[index]);
  }
  /// The same, without waking a worker.
  template <class F>
  auto inspect(std::size_t index, F&& what) const {
    const std::scoped_lock lock(mutex_);
    return what(*streams_[index]);
  }

  /// Lanes::open(), with ring memory for the client. One thread at a time.
  Result<wire::AttachReply> open(std::size_t index, const wire::OpenRequest& request);

  /// A descriptor (an eventfd) that wakes a worker when written: the client's doorbell. It is watched until
  /// `unwatch`.
  Result<ring::UniqueFd> make_doorbell();
  void unwatch(const ring::UniqueFd& doorbell);

  [[nodiscard]] metrics::StreamTotals totals(std::size_t stream) const;
  [[nodiscard]] std::uint64_t stream_busy_ns(std::size_t stream) const;
  [[nodiscard]] std::uint64_t busy_ns() const;  ///< sum over all workers
  /// How long the workers were ready to run, but had no CPU: a sum, too.
  [[nodiscard]] std::uint64_t cpu_wait_ns() const;
  /// How long the longest running slice has taken so far; /readyz reports stalled workers with it.
  [[nodiscard]] std::uint64_t longest_slice_ns(std::uint64_t now_ns) const;

 private:
  struct Worker {
    std::thread thread;
    std::atomic<pid_t> id{0};                             ///< of the running thread
    std::unique_ptr<metrics::StreamCounters[]> counters;  ///< one per stream
    std::atomic<std::uint64_t> slice_since_ns{0};
    ring::SpinBudget spin;
    std::optional<decode::JpegTiler> tiler;
    std::uint64_t busy_since_ns = 0;  ///< [lock] start of work without a pause or a kick(); 0: none
    bool away = false;                ///< [lock] in a run that may be long
    struct Wake {
      const ring::RingWriter* ring;
      std::uint64_t lanes;  ///< one bit per lane
    };
    std::vector<Wake> wakes;  ///< clients to wake once the lock is released; kept to save allocations
  };
  struct Picked {
    std::shared_ptr<FillJob> job;
    Stream* stream = nullptr;
  };
  struct Kick {
    Engine& engine;
    Stream& stream;
    ~Kick() {
      stream.publish_figures();
      engine.kick();
    }
  };

  void run(std::size_t index);
  /// [lock] Works on one job's slices, with the lock released meanwhile. False: there was nothing to do.
  bool run_one(Worker& worker, RowScratch& scratch, std::unique_lock<std::mutex>& lock);
  Picked pick(std::uint64_t now_ns);         ///< [lock] without a job: nothing to do
  void pump_all(std::uint64_t now_ns);       ///< [lock]
  void collect_wakes(Worker& worker);        ///< [lock]
  static void wake_clients(Worker& worker);  ///< without the lock, which others would wait for
  void kick();                               ///< [lock] wakes one sleeping worker, if there is one
  void ring_wake();
  /// [lock] Returns when there may be work: polls for a while if polling has paid off lately, then sleeps.
  void park(Worker& worker, RowScratch& scratch, std::unique_lock<std::mutex>& lock);
  /// [lock] Tiles one image, with the lock released meanwhile. False: none waits, or enough workers tile.
  bool tile(Worker& worker, std::unique_lock<std::mutex>& lock);
  /// [lock] Polls for acks, for which a sleeping worker would have to be woken. True: there are some.
  bool poll_acks(std::uint64_t until_ns, std::unique_lock<std::mutex>& lock);
  void sleep(std::unique_lock<std::mutex>& lock);
  void publish_idle();                  ///< [lock] tells the clients when to ring their doorbells
  [[nodiscard]] bool has_acks() const;  ///< [lock]

  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Worker>> workers_;
  const placement::Placement placement_;
  const std::vector<std::shared_ptr<cache::IdleTiler>> tilers_;
  ring::UniqueFd epoll_, wake_;
  mutable std::mutex mutex_;
  unsigned sleepers_ = 0;
  unsigned tiling_ = 0;  ///< workers that tile an image
  ring::ServerIdle idle_ = ring::kServerAwake;
  bool polling_ = false;  ///< a worker polls before it sleeps
  std::atomic<bool> stopping_{false};
};

}  // namespace headrace::server::exec
