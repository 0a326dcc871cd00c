// Detects jobs that could share rows, but for which rows are decoded again.
//
// Thread safety: one thread calls check(); any thread may call the other functions.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/assembly/share_rows.h"
#include "server/exec/engine.h"

namespace headrace::server::session {

class SharingWatch {
 public:
  /// A client of a broadcast stream, or the ranks of a group: each row is meant for it once.
  struct Job {
    std::string name;
    std::uint64_t granted = 0;  ///< samples, so far
    std::uint32_t behind = 0;   ///< batches behind the foremost job
    std::uint64_t rows_behind = 0;
  };
  struct Figures {
    std::uint64_t decoded = 0;                  ///< samples, so far, by all streams that share
    std::uint64_t ahead = 0;                    ///< samples that may be decoded ahead of the jobs
    std::optional<std::uint64_t> foremost;      ///< number of the row that the foremost job needs next
    std::uint64_t refused = 0;                  ///< rows that the window had no room for, so far
    std::optional<std::uint64_t> window_bytes;  ///< nullopt: no rows are kept
    std::uint64_t row_bytes = 0;                ///< of a row in the window
    std::vector<Job> jobs;                      ///< that are attached
  };

  /// The streams of an assembly::SharingGroup. `broadcast`: there is one, and its clients get every batch.
  SharingWatch(const std::vector<std::string>& streams, bool broadcast);

  /// Compares the figures with those of 30 s ago. Returns a warning if the same jobs stayed attached, at
  /// least two are active, and Interval::again exceeds half of what all but the busiest job received. Warns
  /// again only after an interval without the problem.
  std::optional<std::string> check(std::uint64_t now_ns, const Figures& figures);

  /// Samples of an interval of 30 s in which the same jobs, at least one, were attached.
  struct Interval {
    std::uint64_t end_ns = 0;
    std::uint64_t decoded = 0;
    std::uint64_t granted = 0;  ///< to all jobs together
    std::uint64_t again = 0;    ///< decoded beyond what the busiest job received
  };
  /// The last complete one; nullopt before the first. A job that comes or goes begins a new interval, and
  /// leaves this one as it is.
  [[nodiscard]] std::optional<Interval> last_interval() const;
  struct Total {
    std::uint64_t decoded = 0, again = 0;
  };
  [[nodiscard]] Total total() const;  ///< the sum of all complete intervals
  /// How many seconds ago the foremost job needed `row` next, rounded to a check. The last 2,400 checks at
  /// which that job had moved are kept; for an earlier row, returns the age of the oldest one. nullopt:
  /// unknown, because the job began later or was not the foremost one then.
  [[nodiscard]] std::optional<double> seconds_since(std::uint64_t now_ns, std::uint64_t row) const;

 private:
  std::string streams_;
  const bool can_wait_;       ///< with sharing.on_lag: wait
  mutable std::mutex mutex_;  ///< guards all members below
  std::optional<Interval> interval_;
  Total total_;
  std::deque<std::pair<std::uint64_t, std::uint64_t>> path_;  ///< of the foremost job: time and row
  std::uint64_t begin_row_ = 0;  ///< the first row that the foremost job needed, as far as it is known
  std::uint64_t since_ns_ = 0, decoded_ = 0, refused_ = 0;
  std::map<std::string, std::uint64_t> granted_,
      previous_;  ///< at the start of the interval, and at the last check
  bool warned_ = false;
};

/// A group with its watch.
struct WatchedGroup {
  WatchedGroup(assembly::SharingGroup sharing, bool broadcast)
      : group(std::move(sharing)), watch(group.streams, broadcast) {}
  assembly::SharingGroup group;
  SharingWatch watch;
};
using WatchedGroups = std::vector<std::unique_ptr<WatchedGroup>>;

/// The current figures of a group's streams.
SharingWatch::Figures sharing_figures(const exec::Engine& engine, const assembly::SharingGroup& group);

}  // namespace headrace::server::session
