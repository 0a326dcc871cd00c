// A stream's private state. `position`, the next batch that next() will return, is all that the iteration
// depends on: the rest can be rebuilt from it with any server over the same data.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "clientlib/client/buffer_pool.h"
#include "clientlib/client/session.h"
#include "headrace/client.h"

namespace headrace {

struct Stream::Impl {
  using Clock = std::chrono::steady_clock;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  // Fixed by open().
  client::Address server;
  std::chrono::milliseconds timeout{};  ///< for one exchange
  OpenOptions options;
  wire::OpenRequest
      identity;  ///< the request that each attachment repeats: stream, group, rank, client name, start
  StreamInfo info;
  client::ForkGuard fork;

  // The attachment; replaced when the server comes back.
  std::shared_ptr<client::Attachment> attachment;  ///< null: detached; the next call attaches again
  std::weak_ptr<client::Attachment>
      former;  ///< the previous one, if it was fenced or abandoned: its session lasts as long as its views
  std::string session;
  std::uint32_t seek = 0;
  std::uint32_t max_leases = 0;
  std::uint64_t mapping_generation = 0;
  std::optional<Clock::time_point> lost_since;
  static constexpr const char *kUnreachable = "is unreachable", *kStopped = "was stopped";
  const char* how_it_ended = kUnreachable;  ///< what is known of the server of the last session

  // The loop's position.
  Cursor position;
  std::uint64_t length = 0;  ///< batches of position.epoch from position.origin
  std::uint64_t epoch_length = 0;
  /// A live stream cannot seek: the next call of next() drops all batches before this cursor.
  Cursor skip_to;
  bool begun = false;                ///< next() returned a batch since the epoch began or since a seek
  std::uint32_t batches_behind = 0;  ///< see wire::AttachReply

  // With Commits::kByCaller; guarded by commit_mutex, because any thread may commit.
  std::mutex commit_mutex;
  std::shared_ptr<ring::RingReader> commit_reader;  ///< null: detached
  std::optional<Cursor> committed;
  std::chrono::nanoseconds uncounted{0};  ///< waits that were committed while detached

  client::Interrupt interrupt;
  std::atomic<std::uint64_t> waited_ns{0};
  std::uint64_t wait_recorded_ns = 0;  ///< time up to which the current wait has been counted
  std::set<std::string> warned;
  std::shared_ptr<client::BufferPool> pool;  ///< for private copies; null until the first one

  // --- attaching (reattach.cpp)
  void adopt(client::Session opened);
  /// Attaches again at `position`. Retries with backoff until the reconnect timeout or the deadline.
  Result<void> reattach(const client::Deadline& deadline);
  Result<void> attach_again(const client::Deadline& deadline);
  /// Marks the session as ended; the next call attaches again.
  void lose();
  /// Abandons a session that the server may still hold: it ends with the last view on it.
  void abandon();

  // --- iterating (stream.cpp, stream_wait.cpp)
  Result<std::optional<BatchView>> next(std::chrono::milliseconds limit);
  Result<ring::Grant> wait_for_grant(const client::Deadline& deadline);
  /// Waits for the grant of the batch at `position`.
  Result<ring::Grant> take_grant(const client::Deadline& deadline);
  /// take_grant() of a slot that its checksum matches. A damaged one is made again (checksums.cpp).
  Result<ring::Grant> take_intact(const client::Deadline& deadline);
  Result<void> request_again(const ring::Grant& damaged);
  /// Counts the wait so far: metrics must show a wait that has not ended.
  void record_wait();
  /// Drops batches up to `skip_to`; after an interrupt the next call continues.
  Result<void> skip(const client::Deadline& deadline);
  BatchView view_of(const ring::Grant& grant);
  [[nodiscard]] bool private_batches() const { return options.batches == Batches::kPrivate; }
  [[nodiscard]] ring::RingReader::Slots slots() const;
  /// Whether a copy-on-write view costs less than a copy.
  [[nodiscard]] bool copies_on_write(const ring::Grant& grant) const;
  /// Commits `position`, if next() is what commits.
  void commit();
  void commit(const Cursor& consumed, std::chrono::nanoseconds waited);
  void set_commit_reader(std::shared_ptr<ring::RingReader> reader);
  void begin_epoch(std::uint64_t epoch);
  Result<void> go_to(const Cursor& target);
  /// Asks the server to move the lane. After most errors, it may have done so.
  [[nodiscard]] Result<wire::CursorSetReply> request_move(
      const Cursor& target, const std::optional<wire::DamagedSlot>& damaged = {}) const;
  /// go_to() for a live stream, which only moves forward.
  Result<void> skip_forward(const Cursor& target);
  /// `position`, or `skip_to` if it is ahead.
  [[nodiscard]] const Cursor& due() const { return std::max(position, skip_to); }
  /// The reason for kLaneFailed, as the server gives it. Servers without this request only log it.
  [[nodiscard]] Error stream_failure() const;
  /// How long it has waited, for which batch and why. Asks the server.
  [[nodiscard]] std::string waited_for(const client::Deadline& deadline) const;
  void warn_of_wait(const client::Deadline& wait);
  [[nodiscard]] bool interrupted() const { return interrupt && interrupt(); }
  /// Warns that batches are copied, if they are. Returns whether it warned.
  bool warn_of_copies();
  /// Warns if it begins far behind the foremost client. Returns whether it warned.
  bool warn_of_lag();
  /// Warns once for each kind. Returns whether it warned.
  bool warn(const std::string& kind, const std::string& text);
};

}  // namespace headrace
