// Which lane of a stream gets the next slot. Pure bookkeeping, like the ledger.
//
// The rule where decoding is the bottleneck and two clients are too far apart to share rows:
//  1. Workers serve the client behind first; the one ahead gets what they have left, so it never waits while
//     a worker is idle.
//  2. It waits only if, at the measured speeds of workers and clients, both together then finish its epoch
//     sooner.
//  3. It waits `patience` in all until they have met, and does not begin to wait if that would not do.
//
// Thread safety: none; the caller holds the publisher's lock.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "server/publish/ledger.h"

namespace headrace::server::publish {

/// Two clients that do not share rows. Rows, and rows per second.
struct Pair {
  double missing = 0;            ///< that the one behind must decode to meet the one ahead
  double rest = 0;               ///< of the epoch of the one ahead
  double room = 0;               ///< for which the window has room, so that they are decoded once in any case
  double decode = 0;             ///< of all workers
  double ahead = 0, behind = 0;  ///< of the clients, if they never waited
};
/// How long the one ahead waits until they meet, if that pays; 0: it does not.
double worthwhile_wait(const Pair& pair);

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

  /// The open lanes: the emptiest ring first (of equally empty ones that which got a batch longest ago), but
  /// those that wait for others last. Valid until the next call.
  std::span<const std::uint32_t> lanes(std::uint64_t now_ns, const Window& window);
  /// Notes which rings are empty. To be called after acks, which empty them.
  void observe(std::uint64_t now_ns);
  /// Counts a batch that workers begin to make for this lane.
  void count(std::uint32_t lane, std::uint64_t rows) {
    made_ += static_cast<double>(rows);
    batch_rows_ = rows;
    last_fill_[lane] = ++fills_;
  }
  /// Lanes, one bit each, that leave the workers to a lane behind.
  [[nodiscard]] std::uint64_t waiting() const { return waiting_; }
  /// The lanes behind for which they do.
  [[nodiscard]] std::uint64_t awaited() const { return awaited_; }

 private:
  /// What a lane did lately: older time counts less and less.
  struct Speed {
    std::uint64_t row = 0;      ///< its position at the last look
    double rows = 0, busy = 0;  ///< seconds in which its ring was not empty
    double waited = 0;          ///< with an empty ring, for others, since the lanes last met
  };

  [[nodiscard]] std::uint64_t row(std::uint32_t lane) const;
  void measure(double seconds);
  void choose(const Window& window);
  [[nodiscard]] bool should_wait(std::uint32_t ahead, std::uint32_t behind, const Window& window) const;

  const Ledger& ledger_;
  const Options options_;
  std::array<std::uint32_t, Ledger::kMaxLanes> order_{};
  std::array<std::uint64_t, Ledger::kMaxLanes> last_fill_{};  ///< numbers of fills
  std::uint64_t fills_ = 0, batch_rows_ = 0;
  std::array<Speed, Ledger::kMaxLanes> speeds_{};
  std::uint64_t waiting_ = 0, awaited_ = 0, starved_ = 0;  ///< one bit per lane; as of the last call
  std::uint64_t seen_ns_ = 0, chosen_ns_ = 0;
  double made_ = 0;                    ///< rows since the last look
  double decoded_ = 0, decoding_ = 0;  ///< rows lately, and the seconds in which somebody's ring was empty
  /// Seconds since the last look in which this lane's ring was empty, or any lane's.
  std::array<double, Ledger::kMaxLanes> empty_{};
  double any_empty_ = 0;
};

}  // namespace headrace::server::publish
