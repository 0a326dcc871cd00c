// Which lane of a stream gets the next slot. Pure bookkeeping, like the ledger.
//
// The rule where decoding is the bottleneck and two clients are too far apart to share rows:
//  1. Workers serve the client behind first; the one ahead gets the remaining capacity, so it never waits
//     while a worker is idle.
//  2. It yields only if, at the measured speeds of workers and clients, the total time of both falls.
//  3. The total wait until they have met is at most `patience`; a longer one is not started.
//
// Cost: update() is O(lanes), and ten times a second O(lanes^2); lanes() sorts them.
//
// Thread safety: none; the caller holds the publisher's lock.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "server/publish/ledger.h"

namespace headrace::server::publish {

/// Two clients that are too far apart to share rows. Rows, and rows per second.
struct FarApart {
  double missing = 0;            ///< that the one behind must decode to meet the one ahead
  double rest = 0;               ///< of the epoch of the one ahead
  double room = 0;               ///< for which the window has room, so that they are decoded once in any case
  double made = 0;               ///< by all workers
  double ahead = 0, behind = 0;  ///< by the clients, if they never waited
};
/// How long the one ahead waits until they meet, if that pays; 0: it does not. `margin`: how much longer the
/// total time without the wait must be, as a ratio.
double worthwhile_wait(const FarApart& clients, double margin);

class FillOrder {
 public:
  struct Options {
    std::uint64_t epoch_rows = 1;
    std::uint64_t patience_ns = 0;  ///< 0: nobody waits
  };
  struct Window {
    std::uint64_t kept = 0;  ///< rows that it keeps for clients that are behind
    std::uint64_t room = 0;  ///< rows that it can keep besides
  };
  /// `ledger` must outlive it.
  FillOrder(const Ledger& ledger, const Options& options) : ledger_(ledger), options_(options) {}

  /// The open lanes: the emptiest ring first (ties: longest without a fill), those that yield last. Of five
  /// fills, up to four go first to lanes in `kept` (one bit each), whose next rows the window has: copying
  /// them costs little, and a client that has caught up shares whole batches. Valid until the next call.
  std::span<const std::uint32_t> lanes(std::uint64_t kept);
  /// Whether a client may have to wait for one behind; else update() has no effect.
  [[nodiscard]] bool lets_yield() const { return options_.patience_ns > 0; }
  /// While fewer than two lanes are open nothing is measured: what one client received then would look like
  /// the speed of the first moment in which there are two.
  void pause();
  /// Ten times a second decides who yields. To be called after acks were taken and grants written. `starved`:
  /// lanes, one bit each, whose client lacks a batch.
  void update(std::uint64_t now_ns, const Window& window, std::uint64_t starved);
  /// The lane has closed, was fenced, or has a new position.
  void forget(std::uint32_t lane);
  /// Counts a batch that workers begin to make for this lane.
  void count(std::uint32_t lane, std::uint64_t rows) {
    if (seen_ns_ != 0) made_ += static_cast<double>(rows);
    batch_rows_ = std::max(batch_rows_, rows);
    last_fill_[lane] = ++fills_;
    kept_fills_ = (kept_ & std::uint64_t{1} << lane) != 0 ? kept_fills_ + 1 : 0;
  }
  /// Lanes, one bit each, that yield the workers to a lane behind.
  [[nodiscard]] std::uint64_t waiting() const { return waiting_; }
  /// The lanes behind for which they do.
  [[nodiscard]] std::uint64_t awaited() const { return awaited_; }

 private:
  /// Measurements of a lane; older ones count less and less.
  struct Speed {
    std::optional<std::uint64_t> row;  ///< its position at the last check
    double rows = 0, busy = 0;         ///< seconds in which its client had a batch
    double waited = 0;                 ///< without a batch, for others, since the lanes last met
  };

  [[nodiscard]] std::uint64_t row(std::uint32_t lane) const;
  void measure(double seconds);
  void choose(const Window& window);
  [[nodiscard]] bool should_wait(std::uint32_t ahead, std::uint32_t behind, const Window& window) const;

  const Ledger& ledger_;
  const Options options_;
  std::array<std::uint32_t, Ledger::kMaxLanes> order_{};
  std::array<std::uint64_t, Ledger::kMaxLanes> last_fill_{};  ///< numbers of fills
  std::uint64_t fills_ = 0;
  std::uint64_t kept_ = 0;        ///< lanes that come first, as of the last lanes()
  std::uint32_t kept_fills_ = 0;  ///< that went to such lanes one after the other
  std::uint64_t batch_rows_ = 0;  ///< of the largest batch so far
  std::array<Speed, Ledger::kMaxLanes> speeds_{};
  std::uint64_t waiting_ = 0, awaited_ = 0, starved_ = 0;  ///< one bit per lane; as of the last update
  std::uint64_t seen_ns_ = 0, checked_ns_ = 0;
  double made_ = 0;                       ///< rows since the last check
  double made_lately_ = 0, seconds_ = 0;  ///< rows, and the seconds in which somebody lacked a batch
  /// Seconds since the last check in which this lane's client lacked a batch, or any client.
  std::array<double, Ledger::kMaxLanes> empty_{};
  double any_empty_ = 0;
};

}  // namespace headrace::server::publish
